"""Sees gradients through hooks on tensors, which put nothing into the autograd graph.

Hooks on modules (``register_full_backward_hook``) insert identity nodes, which changes the order in which gradients are
summed, and so their bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from msprobe.adapters.pytorch.guard import guarded
from msprobe.adapters.pytorch.parallel.origins import KnownOrigins, is_wrapped_directly, origin_of
from msprobe.adapters.pytorch.seen import is_transformed

if TYPE_CHECKING:
    from collections.abc import Callable

    from msprobe.adapters.pytorch.guard import Failures
    from msprobe.adapters.pytorch.observing import Observer
    from msprobe.adapters.pytorch.parallel.origins import Origin
    from msprobe.adapters.pytorch.parallel.spreads import Spread
    from msprobe.adapters.pytorch.placed import Placed
    from msprobe.core.sites import Direction, Role


class GradientPlace(NamedTuple):
    """A site of a gradient, but for the call: ``call`` is that of the first gradient that arrives in a micro-step."""

    node: int
    direction: Direction
    role: Role
    argument: str
    call: int
    what: frozenset[str]


class GradientWatch:
    """The hook on one tensor: whose gradient it is, and in which micro-step its forward ran (None: in any).

    ``placed`` says how the gradient lies in that of all ranks, ``after`` hears of it with the micro-step.
    """

    __slots__ = ("_arrived", "_counts", "after", "micro_step", "path", "placed", "places", "spread")
    #: Tells torch that a pickled tensor may lose this hook without a warning.
    __torch_unserializable__ = True

    def __init__(
        self, arrived: Callable[[GradientWatch, torch.Tensor], None], path: str, micro_step: int | None
    ) -> None:
        self._arrived = arrived
        self._counts: dict[int, int] = {}
        self.path = path
        self.micro_step = micro_step
        self.places: list[GradientPlace] = []
        self.placed: Callable[[torch.Tensor | Placed], torch.Tensor | Placed] | None = None
        self.after: Callable[[int], None] | None = None
        #: How the tensor lies in the whole one, as its gradient does; None: it is whole.
        self.spread: Spread | None = None

    def __call__(self, gradient: torch.Tensor) -> None:
        self._arrived(self, gradient)

    def count(self, micro_step: int) -> int:
        """Counts the gradients that arrived in a micro-step before this one: several nested passes give several."""
        before = self._counts.get(micro_step, 0)
        self._counts[micro_step] = before + 1
        return before


class Gradients:
    """Watches the gradients of tensors for the length of one step."""

    def __init__(self, observer: Observer, failures: Failures) -> None:
        self.failures = failures
        self.arrivals = 0
        self._observer = observer
        self._handles: list[Any] = []
        self._micro_step_of: dict[int, int] = {}
        self._origins = KnownOrigins()

    def watch_output(self, tensor: torch.Tensor, path: str, place: GradientPlace, micro_step: int) -> None:
        """Records the gradient of a module's output; several modules may give the same tensor."""
        self._watch(tensor, path, place, micro_step, join=True)

    def watch_input(self, tensor: torch.Tensor, path: str, place: GradientPlace, micro_step: int) -> None:
        """Records the gradient of a module's input, unless it is recorded at another place already."""
        self._watch(tensor, path, place, micro_step, join=False)

    def watch_parameter(
        self,
        parameter: torch.Tensor,
        path: str,
        places: list[GradientPlace],
        *,
        placed: Callable[[torch.Tensor | Placed], torch.Tensor | Placed] | None = None,
        after: Callable[[int], None] | None = None,
    ) -> None:
        """Records the gradient that each backward pass adds to a parameter, before it is added."""
        watch = GradientWatch(self._hook, path, None)
        watch.placed, watch.after = placed, after
        watch.places.extend(places)
        layouts = self._observer.layouts
        watch.spread = layouts.spread_of(parameter) if layouts is not None else None
        self._handles.append(parameter.register_hook(watch))

    def micro_step_of_backward(self) -> int | None:
        """Gives the micro-step whose gradients the running backward pass computes, where one has been seen."""
        return self._micro_step_of.get(torch._C._current_graph_task_id())

    def end_step(self) -> None:
        """Takes every hook off again."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._micro_step_of.clear()
        self._origins.clear()
        self.arrivals = 0

    def _watch(self, tensor: torch.Tensor, path: str, place: GradientPlace, micro_step: int, *, join: bool) -> None:
        if not tensor.requires_grad or not torch.is_grad_enabled() or is_transformed(tensor):
            return
        seen = self._observer.seen.look(tensor)
        if seen is not None and seen.watch is not None:
            if join:
                seen.watch.places.append(place)
            return
        watch = GradientWatch(self._hook, path, micro_step)
        watch.placed = self._observer.samples.gradient if self._observer.samples is not None else None
        watch.places.append(place)
        watch.spread = seen.spread if seen is not None else None
        origin = origin_of(tensor)
        if origin is None:
            self._handles.append(tensor.register_hook(watch))
            self._origins.add(tensor)
        elif not self._origins.holds(origin):
            self._watch_origin(watch, tensor, origin)
        if seen is not None:
            seen.watch = watch

    def _watch_origin(self, watch: GradientWatch, tensor: Any, origin: Origin) -> None:
        """Watches the gradient of what a distributed tensor was wrapped around."""
        node, number = origin
        layouts = self._observer.layouts
        if layouts is not None and is_wrapped_directly(tensor):
            watch.spread = layouts.spread_of(tensor)

        def before(gradients: tuple[torch.Tensor | None, ...]) -> None:
            gradient = gradients[number]
            if gradient is not None:
                watch(gradient)

        self._handles.append(node.register_prehook(before))

    def _hook(self, watch: GradientWatch, gradient: torch.Tensor) -> None:
        if self._handles:
            self.arrived(watch, gradient)

    @guarded
    def arrived(self, watch: GradientWatch, gradient: torch.Tensor) -> None:
        """Records a gradient at every place of its tensor."""
        micro_step = watch.micro_step
        if micro_step is None:
            known = self.micro_step_of_backward()
            micro_step = self._observer.recorder.micro_step if known is None else known
        else:
            self._micro_step_of[torch._C._current_graph_task_id()] = micro_step
        self.arrivals += 1
        count = watch.count(micro_step)
        for place in watch.places:
            site = self._observer.recorder.site(
                place.node, place.direction, place.role, place.argument, place.call + count
            )
            self._observer.gradient(site, gradient, place.what, micro_step, watch)
        if watch.after is not None:
            watch.after(micro_step)
