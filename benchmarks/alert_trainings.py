"""Small trainings of many kinds for the benchmark of the alerts: clean, or with one anomaly at a step and a place."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn, optim

import msprobe

WORDS, WIDTH, LENGTH, BATCH = 61, 32, 16, 8


class Block(nn.Module):
    """A transformer block with eager attention: scores, masks and weights are modules' results."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.mask, self.softmax, self.drop = Mask(), nn.Softmax(-1), nn.Dropout(dropout)
        self.up, self.act, self.down = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        """Attends and transforms."""
        y = self.norm_1(x)
        q, k, v = (f(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        weights = self.softmax(self.mask(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), keep))
        x = x + self.drop(self.o((weights @ v).transpose(1, 2).flatten(2)))
        return x + self.drop(self.down(self.act(self.up(self.norm_2(x)))))


class Mask(nn.Module):
    """Writes -inf where nothing may be seen."""

    def forward(self, scores: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        """Masks the scores."""
        return scores.masked_fill(~keep, -math.inf)


class Language(nn.Module):
    """A causal language model with left padding and tied weights."""

    def __init__(self, layers: int = 2, dropout: float = 0.1) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(WIDTH, 4, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.embed.weight
        nn.init.normal_(self.embed.weight, std=0.05)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Gives logits."""
        length = ids.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        keep = causal & (ids != 0)[:, None, None, :] | torch.eye(length, dtype=torch.bool)
        x = self.embed(ids) + self.place(torch.arange(length))
        for block in self.blocks:
            x = block(x, keep)
        return self.head(self.norm(x))


class Experts(nn.Module):
    """A classifier with a sparse mixture of experts, some of which may get nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.router = nn.Linear(12, WIDTH), nn.Linear(WIDTH, 6)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, 48), nn.ReLU(), nn.Linear(48, WIDTH)) for _ in range(6)
        )
        self.end = nn.Linear(WIDTH, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Routes each row to two experts."""
        h = torch.tanh(self.start(x))
        weight, chosen = self.router(h).softmax(-1).topk(2, dim=-1)
        result = h
        for index, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == index)
            if len(rows):
                result = result.index_add(0, rows, expert(h[rows]) * weight[rows, slot, None])
        return self.end(result)


def _mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(12, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 5)
    )


def _conv() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(16, 5)),
    )


@dataclass(frozen=True, slots=True)
class Recipe:
    """A model, its optimizer and its schedule."""

    name: str
    model: Callable[[], nn.Module]
    optimizer: Callable[[Any], torch.optim.Optimizer]
    #: Learning rate by share of the training, as a factor.
    schedule: Callable[[float], float] = lambda share: 1.0
    clip: float = 0.0
    accumulate: int = 1
    #: Trains in fp16 under a gradient scaler.
    half: bool = False


def _warm_cosine(share: float) -> float:
    return share / 0.1 if share < 0.1 else 0.5 * (1 + math.cos(math.pi * (share - 0.1) / 0.9))


def _steps_down(share: float) -> float:
    return 0.1 ** int(share * 3)


def _linear(share: float) -> float:
    return min(1.0, share / 0.05) * (1 - share)


_LANGUAGE_3 = partial(Language, 3)
RECIPES = (
    Recipe("language, AdamW, warm-up, cosine", Language, partial(optim.AdamW, lr=3e-3), _warm_cosine, clip=1.0),
    Recipe("language, Adafactor, accumulation", _LANGUAGE_3, partial(optim.Adafactor, lr=1e-2), accumulate=2),
    Recipe("language, fp16, gradient scaler", Language, partial(optim.AdamW, lr=1e-3), _linear, half=True),
    Recipe("perceptron, SGD, steps down", _mlp, partial(optim.SGD, lr=0.05, momentum=0.9), _steps_down),
    Recipe("convolutions, Adam", _conv, partial(optim.Adam, lr=1e-3)),
    Recipe("experts, RMSprop, clipped", Experts, partial(optim.RMSprop, lr=5e-4), _linear, clip=0.5),
    Recipe("experts, AdamW, plain", Experts, partial(optim.AdamW, lr=2e-3), accumulate=2),
)


def batches(model: nn.Module, seed: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Gives batches of a task that can be learned; those of language are padded on the left."""
    draw = torch.Generator().manual_seed(seed)
    weights = torch.randn(12, 5, generator=draw)
    while True:
        if isinstance(model, Language):
            start = torch.randint(1, WORDS, (BATCH, 1), generator=draw)
            stride = torch.randint(1, 4, (BATCH, 1), generator=draw)
            ids = (start + stride * torch.arange(LENGTH)) % (WORDS - 1) + 1
            padding = torch.randint(0, LENGTH // 2, (BATCH, 1), generator=draw)
            ids = torch.where(torch.arange(LENGTH) < padding, 0, ids)
            yield ids, ids
            continue
        x = torch.randn(4 * BATCH, 12, generator=draw)
        target = (x @ weights + 0.5 * torch.randn(4 * BATCH, 5, generator=draw)).argmax(-1)
        yield (
            (x.repeat(1, 12).view(-1, 1, 12, 12) if isinstance(model[0], nn.Conv2d) else x)
            if isinstance(model, nn.Sequential)
            else x,
            target,
        )


def loss_of(model: nn.Module, inputs: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Computes the loss; padded places do not count."""
    logits = model(inputs)
    if isinstance(model, Language):
        logits, target = logits[:, :-1].flatten(0, 1), target[:, 1:].masked_fill(target[:, 1:] == 0, -100).flatten()
    return nn.functional.cross_entropy(logits.float(), target)


class Anomaly:
    """Does nothing; the kinds in ``benchmarks.alerts`` do one thing from a step on."""

    def __init__(self, model: nn.Module, step: int, chosen: random.Random) -> None:
        self.model, self.step, self.chosen = model, step, chosen
        #: The node at which it begins, where it has one.
        self.node = ""
        self.now = -1

    def begin(self, step: int, optimizer: torch.optim.Optimizer) -> None:
        """Hears of a step that begins."""
        self.now = step

    def batch(self, inputs: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """May change a batch."""
        return inputs, target

    def gradients(self) -> None:
        """May change gradients before the optimizer's step."""


def train(  # noqa: PLR0913 -- a training in seven words
    recipe: Recipe,
    seed: int,
    steps: int,
    out: Path | None,
    make: Callable[..., Anomaly] = Anomaly,
    at: int = -1,
    until: int | None = None,
    **options: Any,
) -> Anomaly:
    """Trains under ``msprobe.monitor`` (with ``out``), with an anomaly at step ``at``; gives the anomaly.

    ``until`` ends the training before the ``steps`` that its schedule is made for.
    """
    torch.manual_seed(seed)
    model = recipe.model()
    optimizer = recipe.optimizer(model.parameters())
    rates = [group["lr"] for group in optimizer.param_groups]
    scaler = torch.amp.GradScaler("cpu", enabled=recipe.half, init_scale=2.0**22, growth_interval=60)
    anomaly = make(model, at, random.Random(seed))
    probe: Any = msprobe.monitor(model, optimizer, out=out, **options) if out is not None else None
    data = batches(model, seed)
    for step in range(steps if until is None else until):
        anomaly.begin(probe.recorder.step if probe is not None else step, optimizer)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * recipe.schedule(step / steps) * getattr(anomaly, "rate", 1.0)
        for _ in range(recipe.accumulate):
            inputs, target = anomaly.batch(*next(data))
            with torch.autocast("cpu", torch.float16, enabled=recipe.half):
                loss = loss_of(model, inputs, target) / recipe.accumulate
            scaler.scale(loss).backward()
        anomaly.gradients()
        if recipe.half:
            scaler.unscale_(optimizer)
        if recipe.clip:
            nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        if probe is not None:
            probe.log(loss=loss)
    if probe is not None:
        probe.close()
    return anomaly
