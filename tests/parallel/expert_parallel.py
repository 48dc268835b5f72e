"""Expert parallelism: ranks have different samples and different experts; tokens go to their expert and come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn

from tests.parallel.transformer import Config, Experts, make_model, train

if TYPE_CHECKING:
    from tests.parallel.launching import Rank


class Exchange(torch.autograd.Function):
    """Sends rows to all ranks and gets theirs; backward goes the other way."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sent: list[int], got: list[int]) -> Tensor:
        ctx.counts = (got, sent)
        return _exchange(rows, sent, got)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return _exchange(gradients[0].contiguous(), *ctx.counts), None, None


def _exchange(rows: Tensor, sent: list[int], got: list[int]) -> Tensor:
    out = rows.new_empty((sum(got), *rows.shape[1:]))
    distributed.all_to_all_single(out, rows, got, sent)
    return out


class ExpertParallel(Experts):
    """The experts of this rank, numbered from 0; ``expert_offset`` is the number of the first among all."""

    def __init__(self, whole: Experts, rank: int, world: int, *, centres: bool) -> None:
        nn.Module.__init__(self)
        self.num_experts, self.world = whole.num_experts, world
        count = whole.num_experts // world
        self.expert_offset = rank * count
        self.centres = centres
        self.router = whole.router
        self.experts = nn.ModuleList(whole.experts[rank * count : (rank + 1) * count])

    def forward(self, x: Tensor) -> Tensor:
        tokens = x.flatten(0, 1)
        weights, chosen = torch.softmax(self.router(tokens), -1).max(-1)
        order = chosen.argsort(stable=True)
        each = torch.bincount(chosen, minlength=self.num_experts)
        from_each = torch.empty_like(each)
        distributed.all_to_all_single(from_each, each)
        sent = each.view(self.world, -1).sum(1).tolist()
        counts = from_each.view(self.world, -1)
        rows = Exchange.apply(tokens[order], sent, counts.sum(1).tolist())
        got = counts.sum(1).tolist()
        parts = [list(block.split(row.tolist())) for block, row in zip(rows.split(got), counts, strict=True)]
        means: list[Tensor] = []
        for number, expert in enumerate(self.experts):
            mine = torch.cat([part[number] for part in parts])
            out = expert(mine)
            means.append(out.mean())
            for part, done in zip(parts, out.split([len(part[number]) for part in parts]), strict=True):
                part[number] = done
        back = Exchange.apply(torch.cat([torch.cat(part) for part in parts]), got, sent)
        result = torch.zeros_like(tokens).index_add(0, order, back * weights[order, None])
        if self.centres:  # the fault: the mean over no tokens
            result = result + 0.0 * torch.stack(means).mean()
        return result.unflatten(0, x.shape[:2])


def train_expert_parallel(rank: Rank, **settings: Any) -> None:
    config = Config(**{"experts": 4, "layers": 2, **settings})
    model = make_model(config)
    layers: Any = model.layers.values()
    for layer in layers:
        centres = rank.fault == "expert without tokens"
        layer.mlp = ExpertParallel(layer.mlp, rank.rank, rank.world, centres=centres)
    with rank.record(model, mesh=f"ep={rank.world}") as probe:
        train(model, config, probe, part=_own_samples, before_step=lambda: average_gradients(rank, model))


def _own_samples(whole: Tensor) -> Tensor:
    return whole.chunk(distributed.get_world_size(), 0)[distributed.get_rank()]


def average_gradients(rank: Rank, model: nn.Module) -> None:
    """Adds up gradients of what all ranks have; an expert's are those of the tokens of all ranks already."""
    for name, parameter in model.named_parameters():
        if parameter.grad is None:
            continue
        if ".experts." not in name:
            distributed.all_reduce(parameter.grad)
        elif rank.fault == "expert gradients not divided":
            continue
        parameter.grad /= rank.world
