"""The small causal transformer that is trained in every layout. Weights depend on their names alone."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """Sizes of the model and of its batches."""

    vocabulary: int = 32
    width: int = 16
    heads: int = 4
    layers: int = 6
    hidden: int = 32
    batch: int = 4
    sequence: int = 8
    dropout: float = 0.0
    #: Experts of each block's feed-forward; 0: a dense one.
    experts: int = 0
    steps: int = 2
    learning_rate: float = 0.05


class Attend(nn.Module):
    """Causal attention over [batch, heads, sequence, head width]; masks by position."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        return attend(q, k, v, positions, positions)


def attend(q: Tensor, k: Tensor, v: Tensor, q_positions: Tensor, k_positions: Tensor) -> Tensor:
    scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
    visible = q_positions[:, None, :, None] >= k_positions[:, None, None, :]
    return torch.softmax(scores.masked_fill(~visible, float("-inf")), -1) @ v


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Turns pairs of [batch, heads, sequence, head width] by angles that grow with the position."""
    half = x.shape[-1] // 2
    speed = 100.0 ** (-torch.arange(half, dtype=torch.float32) / half)
    angle = positions[:, None, :, None].float() * speed
    first, second = x[..., :half], x[..., half:]
    turned = torch.cat([first * angle.cos() - second * angle.sin(), first * angle.sin() + second * angle.cos()], -1)
    return turned.to(x.dtype)


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.head_width = config.width // config.heads
        self.q = nn.Linear(config.width, config.width, bias=False)
        self.k = nn.Linear(config.width, config.width, bias=False)
        self.v = nn.Linear(config.width, config.width, bias=False)
        self.attend = Attend()
        self.o = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        q, k, v = (part(x).unflatten(-1, (-1, self.head_width)).transpose(1, 2) for part in (self.q, self.k, self.v))
        mixed = self.attend(rotate(q, positions), rotate(k, positions), v, positions)
        return self.o(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate = nn.Linear(config.width, config.hidden, bias=False)
        self.up = nn.Linear(config.width, config.hidden, bias=False)
        self.act = nn.SiLU()
        self.down = nn.Linear(config.hidden, config.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.act(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """Sends each token to one expert; ``experts`` holds those of this rank."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.num_experts = config.experts
        self.router = nn.Linear(config.width, config.experts, bias=False)
        self.experts = nn.ModuleList(FeedForward(config) for _ in range(config.experts))

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        weights, chosen = torch.softmax(self.router(tokens), -1).max(-1)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            mine = (chosen == number).nonzero()[:, 0]
            out = out.index_add(0, mine, expert(tokens[mine]) * weights[mine, None])
        return out.unflatten(0, x.shape[:2])


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.width, eps=1e-5)
        self.attention = Attention(config)
        self.mlp_norm = nn.RMSNorm(config.width, eps=1e-5)
        self.mlp: nn.Module = Experts(config) if config.experts else FeedForward(config)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x), positions)
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    """From [batch, sequence] of word numbers to [batch, sequence, vocabulary]; a stage lacks what others hold."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.embed: nn.Module | None = nn.Embedding(config.vocabulary, config.width)
        self.drop: nn.Module | None = nn.Dropout(config.dropout)
        self.layers = nn.ModuleDict({str(number): Block(config) for number in range(config.layers)})
        self.norm: nn.Module | None = nn.LayerNorm(config.width)
        self.head: nn.Module | None = nn.Linear(config.width, config.vocabulary, bias=False)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        if self.embed is not None and self.drop is not None:
            x = self.drop(self.embed(x))
        for layer in self.layers.values():
            x = layer(x, positions)
        return self.head(self.norm(x)) if self.norm is not None and self.head is not None else x


def make_model(config: Config) -> Transformer:
    """Makes the whole model; each weight is drawn from a generator seeded by its name."""
    model = Transformer(config)
    for name, parameter in model.named_parameters():
        parameter.data.copy_(named_weight(name, parameter))
    return model


def named_weight(name: str, parameter: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big"))
    drawn = torch.randn(parameter.shape, generator=generator)
    return 1.0 + 0.1 * drawn if parameter.ndim == 1 else drawn / parameter.shape[-1] ** 0.5


def make_batch(config: Config, step: int) -> tuple[Tensor, Tensor, Tensor]:
    """Gives words, targets and positions of a step, each [batch, sequence]."""
    generator = torch.Generator().manual_seed(100 + step)
    words = torch.randint(config.vocabulary, (config.batch, config.sequence + 1), generator=generator)
    positions = torch.arange(config.sequence).expand(config.batch, -1).contiguous()
    return words[:, :-1].contiguous(), words[:, 1:].contiguous(), positions


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_optimizer(model: nn.Module, config: Config) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=config.learning_rate)


def train(
    model: nn.Module,
    config: Config,
    probe: Any,
    *,
    part: Callable[[Tensor], Tensor] = lambda whole: whole,
    before_step: Callable[[], None] = lambda: None,
    seed: int = 0,
) -> None:
    """Trains for the steps of the config; ``part`` gives the rank's part of a [batch, sequence] tensor.

    ``before_step`` is called between backward and the optimizer's step, for reductions that the layout does itself.
    """
    optimizer = make_optimizer(model, config)
    for step in range(config.steps):
        torch.manual_seed(1000 * seed + step)
        words, targets, positions = (part(whole) for whole in make_batch(config, step))
        optimizer.zero_grad()
        loss_of(model(words, positions=positions), targets).backward()
        before_step()
        optimizer.step()
        probe.step()
