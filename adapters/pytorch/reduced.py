"""Sees the gradients of held parameters when their reduction over ranks is complete, before anybody clips them.

Reductions run beside the backward pass and are complete when the callbacks that wrappers queue at its end have run.
Ours is queued at the first gradient and queues itself again from the end of the queue, so it runs after theirs; nothing
waits and no collective is added.
"""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING

import torch

from msprobe.adapters.pytorch.guard import guarded
from msprobe.adapters.pytorch.placed import plain_of
from msprobe.core.graph import EdgeSource
from msprobe.core.sites import Direction, Role

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from msprobe.adapters.pytorch.guard import Failures
    from msprobe.adapters.pytorch.holdings import Holding, Named
    from msprobe.adapters.pytorch.nodes import WatchedModule
    from msprobe.adapters.pytorch.observing import Observer

#: How often our callback goes to the end of the queue: a wrapper's callback may queue one of its own.
_HOPS = 2


class ReducedGradients:
    """Records what a backward pass leaves for the optimizer once it is reduced."""

    def __init__(self, observer: Observer, failures: Failures) -> None:
        self.failures = failures
        self._observer = observer
        self._passes: set[int] = set()
        self._arrived: set[int] = set()
        self._seen: dict[int, tuple[weakref.ref[torch.Tensor], int]] = {}

    def expect(self, holding: Holding, held: Iterable[tuple[Holding, list[Named]]], micro_step: int) -> None:
        """Hears that a backward pass has computed a gradient of one of the ``held`` parameters."""
        self._arrived.add(id(holding))
        task = torch._C._current_graph_task_id()
        if task == -1 or task in self._passes:
            return
        self._passes.add(task)

        def run(hops: int) -> None:
            if hops:
                _queue(partial(run, hops - 1))
                return
            self.now(held, micro_step)

        _queue(partial(run, _HOPS))

    def now(self, held: Iterable[tuple[Holding, list[Named]]], micro_step: int, *, told: bool = False) -> None:
        """Records what was reduced since the last time: at the end of a backward pass, or ``told`` by a wrapper."""
        for holding, names in held:
            if told or holding.reduces():
                self.reduced(names[0][0], holding, names, micro_step)

    def end_step(self) -> None:
        """Forgets the backward passes of the step."""
        self._passes.clear()
        self._arrived.clear()
        self._seen.clear()

    @guarded
    def reduced(self, watched: WatchedModule, holding: Holding, names: list[Named], micro_step: int) -> None:
        """Records the gradient of one parameter, if it is another than before."""
        gradient = holding.gradient()
        if gradient is None:
            return
        plain = plain_of(gradient)
        seen = self._seen.get(id(holding))
        if seen is not None and seen[0]() is plain and seen[1] == plain._version:
            return
        self._seen[id(holding)] = (weakref.ref(plain), plain._version)
        recorder, tracer = self._observer.recorder, self._observer.tracer
        for owner, name in names:
            if not owner.what:
                continue
            site = recorder.site(owner.node, Direction.REDUCE, Role.GRADIENT, name, 0)
            if tracer is None:
                self._observer.value(site, gradient, owner.what, micro_step)
                continue
            self._observer.gradient(site, gradient, owner.what, micro_step)
            if id(holding) in self._arrived:
                own = recorder.site(owner.node, Direction.BACKWARD, Role.GRADIENT, name, 0)
                recorder.edge(own, site, EdgeSource.TRACED)


def _queue(function: Callable[[], None]) -> None:
    torch.autograd.Variable._execution_engine.queue_callback(function)
