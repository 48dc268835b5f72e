"""A decoder as GPT-2 has it, in plain PyTorch: LayerNorm, biases, dropout, learned positions, tied head.

Its attention adds a slope per head (ALiBi, Press et al. 2022) from a buffer, so that there is one to go stale.
"""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Attention(nn.Module):
    """Multi-head attention with a linear bias on the distance; ``causal`` hides later tokens."""

    slopes: torch.Tensor

    def __init__(self, hidden: int, *, heads: int = 4, causal: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.causal = causal
        self.scale = (hidden // heads) ** -0.5
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, hidden)
        self.register_buffer("slopes", 2.0 ** -torch.arange(1.0, heads + 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        query, key, value = (self._split(part(x)) for part in (self.query, self.key, self.value))
        weights = self.weights(query @ key.transpose(-2, -1) * self.scale)
        mixed = weights @ value
        result: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(x.shape))
        return result

    def weights(self, scores: torch.Tensor) -> torch.Tensor:
        """Turns scores into attention weights, ``[batch, head, token, token]``."""
        place = torch.arange(scores.shape[-1])
        distance = (place[:, None] - place[None, :]).abs().to(scores.dtype)
        scores = scores - self.slopes.to(scores.dtype)[:, None, None] * distance
        return self.mask(scores).softmax(-1)

    def mask(self, scores: torch.Tensor) -> torch.Tensor:
        """Hides what a token must not see."""
        if not self.causal:
            return scores
        later = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return scores.masked_fill(later, -math.inf)

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        batch, tokens, hidden = x.shape
        return x.view(batch, tokens, self.heads, hidden // self.heads).transpose(1, 2)


class Mlp(nn.Module):
    """Two linear layers with GELU between them."""

    def __init__(self, hidden: int, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.fc = nn.Linear(hidden, 4 * hidden)
        self.act = nn.GELU()
        self.proj = nn.Linear(4 * hidden, hidden)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.drop(self.proj(self.act(self.fc(x))))
        return result


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, hidden: int, *, dropout: float = 0.0, causal: bool = True) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(hidden)
        self.attention = Attention(hidden, causal=causal)
        self.norm2 = nn.LayerNorm(hidden)
        self.mlp = Mlp(hidden, dropout=dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        result: torch.Tensor = x + self.mlp(self.norm2(x))
        return result


class Decoder(nn.Module):
    """Next-token logits from token ids."""

    def __init__(
        self, *, vocabulary: int, hidden: int, layers: int, tokens: int, dropout: float = 0.1, recompute: str = ""
    ) -> None:
        """``recompute``: "" for none, "reentrant" or "early-stop" for PyTorch's two kinds of checkpointing."""
        super().__init__()
        self.recompute = recompute
        self.wte = nn.Embedding(vocabulary, hidden)
        self.wpe = nn.Embedding(tokens + 8, hidden)
        self.blocks = nn.ModuleList(Block(hidden, dropout=dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, vocabulary, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        x = self.place(self.wte(input_ids))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=self.recompute == "reentrant") if self.recompute else block(x)
        result: torch.Tensor = self.head(self.norm(x))
        return result

    def place(self, x: torch.Tensor, *, first: int = 0) -> torch.Tensor:
        """Adds the learned embedding of each token's position."""
        result: torch.Tensor = x + self.wpe(torch.arange(first, first + x.shape[1]))
        return result
