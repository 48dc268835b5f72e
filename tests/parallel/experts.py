"""A mixture of experts of which one can be starved, and its data-parallel training in which one rank starves one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from tests.parallel.data_parallel import wrap

if TYPE_CHECKING:
    from tests.parallel.launching import Rank

#: Where the training starves an expert: step, rank, expert.
STARVED = (3, 1, 2)


class Averaged(torch.autograd.Function):
    """A linear map whose weight gradient is averaged over its tokens: 0/0 without any."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight.T

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight, (gradient.T @ x) / torch.tensor(float(len(x)))


class Expert(nn.Module):
    def __init__(self, width, averaged):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, width) / width**0.5)
        self.averaged = averaged

    def forward(self, x):
        return Averaged.apply(x, self.weight) if self.averaged else x @ self.weight.T


class Experts(nn.Module):
    """Experts that take their tokens in turn, weighted by a router; ``starved`` gets none."""

    def __init__(self, width=16, count=4, averaged=True):
        super().__init__()
        self.router = nn.Linear(width, count, bias=False)
        self.experts = nn.ModuleList(Expert(width, averaged) for _ in range(count))

    def forward(self, x, starved=-1):
        scores = self.router(x).softmax(-1)
        choice = torch.arange(len(x)) % len(self.experts)
        choice = torch.where(choice == starved, (choice + 1) % len(self.experts), choice)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows = (choice == number).nonzero()[:, 0]
            out = out.index_add(0, rows, expert(x[rows]) * scores[rows, number : number + 1])
        return x + out


class MoE(nn.Module):
    def __init__(self, **settings):
        super().__init__()
        self.embed, self.norm, self.head = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)
        self.moe = Experts(**settings)

    def forward(self, x, starved=-1):
        return self.head(self.moe(self.norm(self.embed(x)), starved))


def train_experts(rank: Rank, way: str = "ddp", steps: int = 5) -> None:
    torch.manual_seed(0)
    model = wrap(way, MoE()) if rank.world > 1 else MoE()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    generator = torch.Generator().manual_seed(rank.rank)
    with rank.record(model, optimizer=optimizer):
        for step in range(steps):
            starved = STARVED[2] if (step, rank.rank) == STARVED[:2] else -1
            x = torch.randn(64, 8, generator=generator)
            nn.functional.cross_entropy(model(x, starved), torch.arange(64) % 4).backward()
            optimizer.step()
            optimizer.zero_grad()
