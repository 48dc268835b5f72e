"""Context parallelism with the zigzag cut: rank i of n has parts i and 2n-1-i of each sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn

from tests.parallel.transformer import Attend, Config, attend, make_model, train

if TYPE_CHECKING:
    from tests.parallel.launching import Rank


class GatherSequence(torch.autograd.Function):
    """Gathers the parts of a sequence; backward sums their gradients over ranks and keeps the own part."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dim: int) -> Tensor:
        ctx.dim = dim
        parts = [torch.empty_like(x) for _ in range(distributed.get_world_size())]
        distributed.all_gather(parts, x.contiguous())
        return torch.cat(parts, dim)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].contiguous()
        distributed.all_reduce(total)
        return total.chunk(distributed.get_world_size(), ctx.dim)[distributed.get_rank()], None


class GatheredAttend(Attend):
    """Attends from the queries of this rank to the keys and values of all."""

    def __init__(self, *, forgets_order: bool) -> None:
        super().__init__()
        self._forgets_order = forgets_order

    def forward(self, q: Tensor, k: Tensor, v: Tensor, positions: Tensor) -> Tensor:
        keys, values = GatherSequence.apply(k, 2), GatherSequence.apply(v, 2)
        places = GatherSequence.apply(positions, 1)
        if self._forgets_order:
            places = places.sort(-1).values
        return attend(q, keys, values, positions, places)


def zigzag_part(whole: Tensor) -> Tensor:
    rank, size = distributed.get_rank(), distributed.get_world_size()
    parts = whole.chunk(2 * size, 1)
    return torch.cat([parts[rank], parts[2 * size - 1 - rank]], 1)


def train_context_parallel(rank: Rank, **settings: Any) -> None:
    config = Config(**settings)
    model = make_model(config)
    layers: Any = model.layers.items()
    for number, layer in layers:
        wrong = rank.fault == "keys out of order" and number == "3"
        layer.attention.attend = GatheredAttend(forgets_order=wrong)
    if rank.fault == "replica perturbed" and rank.rank == 1:
        model.get_parameter("layers.3.mlp_norm.weight").data[0] += 0.01
    options = {"mesh": f"cp={rank.world}", "context_parallel": "zigzag"}
    with rank.record(model, **options) as probe:
        train(model, config, probe, part=zigzag_part, before_step=lambda: average_gradients(rank, model))
    rank.keep_weights(model)


def average_gradients(rank: Rank, model: nn.Module) -> None:
    for parameter in model.parameters():
        assert parameter.grad is not None
        distributed.all_reduce(parameter.grad)
        if rank.fault != "gradients summed":
            parameter.grad /= rank.world
