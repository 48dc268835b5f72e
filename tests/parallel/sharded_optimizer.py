"""A stand-in for a distributed optimizer (Megatron's, ZeRO's first stage): the model is whole on every rank, the
optimizer keeps one slice of each parameter in full precision, and reduces gradients when it is asked to.

It has the surface of the real ones: gradients gather in ``main_grad``, ``finish_grad_sync`` reduces, an inner optimizer
steps on the slices, ``gather`` writes the model's parameters. It shows that such an optimizer needs a finder only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, distributed, nn

from msprobe.adapters.pytorch.holdings import FINDERS, DataParallel, Found, place
from msprobe.adapters.pytorch.placed import Placed
from msprobe.core.placement import Layout
from tests.parallel.data_parallel import CLIPPED, MICRO_STEPS, gradients_of, make_tied_model
from tests.parallel.transformer import Config

if TYPE_CHECKING:
    from tests.parallel.launching import Rank


class ShardedOptimizer:
    """Keeps slice ``rank`` of each parameter of a model."""

    def __init__(self, model: nn.Module, learning_rate: float) -> None:
        self.rank, self.world = distributed.get_rank(), distributed.get_world_size()
        self.parameters = dict(model.named_parameters())
        self.shards: dict[str, nn.Parameter] = {}
        for name, parameter in self.parameters.items():
            start, length = self.range_of(parameter)
            self.shards[name] = nn.Parameter(parameter.detach().reshape(-1)[start : start + length].clone())
            parameter.main_grad = torch.zeros_like(parameter)  # type: ignore[attr-defined]
            parameter.register_post_accumulate_grad_hook(_gather_gradient)
        self.inner = torch.optim.SGD(self.shards.values(), lr=learning_rate)
        self.listeners: list[Callable[[], None]] = []

    def range_of(self, parameter: Tensor) -> tuple[int, int]:
        size = -(-parameter.numel() // self.world)
        start = min(self.rank * size, parameter.numel())
        return start, min(size, parameter.numel() - start)

    def finish_grad_sync(self) -> None:
        for name, parameter in self.parameters.items():
            gradient = parameter.main_grad  # type: ignore[attr-defined]
            distributed.all_reduce(gradient)
            start, length = self.range_of(parameter)
            self.shards[name].grad = gradient.div_(self.world).reshape(-1)[start : start + length].clone()
            gradient.zero_()
        for listener in self.listeners:
            listener()

    def gather(self) -> None:
        for name, parameter in self.parameters.items():
            size = -(-parameter.numel() // self.world)
            mine = torch.nn.functional.pad(self.shards[name].detach(), (0, size - self.shards[name].numel()))
            parts = [torch.empty(size) for _ in range(self.world)]
            distributed.all_gather(parts, mine)
            parameter.data.copy_(torch.cat(parts)[: parameter.numel()].view_as(parameter))


def _gather_gradient(parameter: Any) -> None:
    parameter.main_grad.add_(parameter.grad)
    parameter.grad = None


class Slice:
    """A parameter of a sharded optimizer, as ``holdings.Holding`` asks."""

    def __init__(self, optimizer: ShardedOptimizer, name: str, group: DataParallel) -> None:
        self._parameter = optimizer.parameters[name]
        self.updated: Tensor = optimizer.shards[name]
        self.group = group
        start, length = optimizer.range_of(self._parameter)
        self._layout = Layout.whole(tuple(self._parameter.shape)).slice_flat("fsdp", start, length)

    def stored(self) -> Placed:
        return Placed(self.updated.detach(), self._layout)

    def used(self) -> Tensor:
        return self._parameter

    def gradient(self) -> Placed | None:
        return None if self.updated.grad is None else Placed(self.updated.grad, self._layout)

    def part(self, tensor: Tensor) -> Tensor | Placed:
        return Placed(tensor, self._layout) if tensor.shape == self.updated.shape else tensor

    def reduces(self) -> bool:
        return False  # it tells by itself, when asked to by ``subscribe``


def find_slices(root: nn.Module) -> Iterator[Found]:
    """The finder: where the stand-in's optimizer is attached to a model."""
    optimizer: Any = getattr(root, "sharded_optimizer", None)
    if optimizer is None:
        return
    group = DataParallel((place("fsdp", distributed.group.WORLD),), float(optimizer.world))
    slices = {id(optimizer.parameters[name]): Slice(optimizer, name, group) for name in optimizer.shards}
    parameters = [
        (module, name, slices[id(parameter)])
        for module in root.modules()
        for name, parameter in module._parameters.items()
        if parameter is not None
    ]

    def subscribe(reduced: Callable[[], None]) -> Callable[[], None]:
        optimizer.listeners.append(reduced)
        return lambda: optimizer.listeners.remove(reduced)

    yield Found(root, parameters, group, {"wrapper": "ShardedOptimizer"}, subscribe)


def train_sharded_optimizer(rank: Rank, **settings: Any) -> None:
    """Trains by micro-steps; gradients are reduced after the last one."""
    FINDERS.append(find_slices)
    config = Config(**settings)
    model: Any = make_tied_model(config)
    optimizer = ShardedOptimizer(model, config.learning_rate)
    object.__setattr__(model, "sharded_optimizer", optimizer)
    with rank.record(model, optimizer=optimizer.inner):
        for step in range(config.steps):
            for micro_step in range(MICRO_STEPS):
                gradients_of(model, config, step, micro_step, rank.rank, rank.world)
            optimizer.finish_grad_sync()
            for shard in optimizer.shards.values():
                shard.grad.mul_(CLIPPED)  # type: ignore[union-attr]
            optimizer.inner.step()
            optimizer.gather()
