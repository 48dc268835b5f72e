"""Tensor and sequence parallelism by hand: layers as in Megatron-LM, with plain calls of ``torch.distributed``."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional as F  # noqa: N812

from msprobe.core.merging.rules import LayoutRule
from tests.parallel.transformer import Config, make_model, train

if TYPE_CHECKING:
    from tests.parallel.launching import Rank


def _reduced(x: Tensor) -> Tensor:
    x = x.contiguous().clone()
    distributed.all_reduce(x)
    return x


def _gathered(x: Tensor) -> Tensor:
    parts = [torch.empty_like(x) for _ in range(distributed.get_world_size())]
    distributed.all_gather(parts, x.contiguous())
    return torch.cat(parts, 1)


def _scattered(x: Tensor) -> Tensor:
    return x.chunk(distributed.get_world_size(), 1)[distributed.get_rank()].contiguous()


def _reduce_scattered(x: Tensor) -> Tensor:
    parts = [part.contiguous() for part in x.chunk(distributed.get_world_size(), 1)]
    out = torch.empty_like(parts[0])
    distributed.reduce_scatter(out, parts)
    return out


def _keep(x: Tensor) -> Tensor:
    return x.view_as(x)


class _Region(torch.autograd.Function):
    """Does one thing in forward and another in backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ahead: Any, back: Any) -> Tensor:
        ctx.back = back
        return ahead(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        return ctx.back(gradients[0]), None, None


class ColumnParallelLinear(nn.Module):
    def __init__(self, whole: nn.Linear, rank: int, world: int, *, sequence: bool, says_so: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(whole.weight.detach().chunk(world, 0)[rank].clone())
        self._ways = (_gathered, _reduce_scattered) if sequence else (_keep, _reduced)
        if says_so:
            _declare(self.weight, 0)

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(_Region.apply(x, *self._ways), self.weight)


class RowParallelLinear(nn.Module):
    def __init__(self, whole: nn.Linear, rank: int, world: int, *, sequence: bool, says_so: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(whole.weight.detach().chunk(world, 1)[rank].clone())
        self._ways = (_reduce_scattered, _gathered) if sequence else (_reduced, _keep)
        if says_so:
            _declare(self.weight, 1)

    def forward(self, x: Tensor) -> Tensor:
        return _Region.apply(F.linear(x, self.weight), *self._ways)


class ScatterSequence(nn.Module):
    """Keeps this rank's part of each sequence; what stands for the dropout of the embedding."""

    def forward(self, x: Tensor) -> Tensor:
        return _Region.apply(x, _scattered, _gathered)


class GatheringNorm(nn.LayerNorm):
    """The last norm, whose result is put together again for the head."""

    def forward(self, x: Tensor) -> Tensor:
        return _Region.apply(super().forward(x), _gathered, _scattered)


def _declare(weight: nn.Parameter, dim: int) -> None:
    weight.tensor_model_parallel = True  # type: ignore[attr-defined]
    weight.partition_dim, weight.partition_stride = dim, 1  # type: ignore[attr-defined]


def train_megatron(rank: Rank, *, sequence: bool = False, says_so: bool = True, **settings: Any) -> None:
    config = Config(**settings)
    model: Any = make_model(config)
    kinds = {"q": ColumnParallelLinear, "k": ColumnParallelLinear, "v": ColumnParallelLinear, "o": RowParallelLinear}
    kinds |= {"gate": ColumnParallelLinear, "up": ColumnParallelLinear, "down": RowParallelLinear}
    for layer in model.layers.values():
        for name, kind in kinds.items():
            owner = layer.attention if name in "qkvo" else layer.mlp
            made = kind(getattr(owner, name), rank.rank, rank.world, sequence=sequence, says_so=says_so)
            setattr(owner, name, made)
    if sequence:
        model.drop = ScatterSequence()
        norm = GatheringNorm(config.width)
        norm.load_state_dict(model.norm.state_dict())
        model.norm = norm
        for name, parameter in model.named_parameters():
            parameter.sequence_parallel = "norm" in name
    options: dict[str, Any] = {} if says_so and not sequence else {"layouts": ["tests.parallel.megatron:Layouts"]}
    if says_so:
        _stand_in_for_megatron(rank)
    else:
        options["mesh"] = f"tp={rank.world}"
    with rank.record(model, **options) as probe:
        train(model, config, probe, before_step=lambda: reduce_norms(rank, model))
    rank.keep_weights(model)


def _stand_in_for_megatron(rank: Rank) -> None:
    """Answers the questions of a program that runs under Megatron-LM, which is not installed here."""
    state: Any = ModuleType("megatron.core.parallel_state")
    state.model_parallel_is_initialized = lambda: True
    state.get_tensor_model_parallel_world_size = lambda: rank.world
    state.get_tensor_model_parallel_rank = lambda: rank.rank
    state.get_tensor_model_parallel_group = lambda: distributed.group.WORLD
    state.get_pipeline_model_parallel_world_size = lambda: 1
    sys.modules[state.__name__] = state


def train_megatron_sequence(rank: Rank, **settings: Any) -> None:
    train_megatron(rank, sequence=True, **settings)


def train_silent_layers(rank: Rank, **settings: Any) -> None:
    """The same layers without the attributes: rules say how their classes are cut."""
    train_megatron(rank, says_so=False, **settings)


def reduce_norms(rank: Rank, model: nn.Module) -> None:
    """Sums the gradients of norms over ranks, which each saw a part of the sequence."""
    if rank.fault == "norm gradients not reduced":
        return
    for parameter in model.parameters():
        if getattr(parameter, "sequence_parallel", False) and parameter.grad is not None:
            distributed.all_reduce(parameter.grad)
            if rank.fault == "norm gradients reduced twice":
                distributed.all_reduce(parameter.grad)


class Layouts:
    """How these layers are cut."""

    name = "megatron"
    rules = (
        LayoutRule.of("ColumnParallelLinear", parameters={"weight": {"tp": "shard(0)"}}),
        LayoutRule.of("RowParallelLinear", parameters={"weight": {"tp": "shard(1)"}}),
        LayoutRule.of("ScatterSequence", outputs={"tp": "shard(1)"}),
    )
