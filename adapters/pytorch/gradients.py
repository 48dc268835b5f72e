"""Sees gradients through hooks on tensors, which put nothing into the autograd graph.

Hooks on modules (``register_full_backward_hook``) insert identity nodes, which changes the order in which gradients are
summed, and so their bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from msprobe.adapters.pytorch.guard import guarded
from msprobe.adapters.pytorch.seen import is_transformed

if TYPE_CHECKING:
    from collections.abc import Callable

    from msprobe.adapters.pytorch.guard import Failures
    from msprobe.adapters.pytorch.observing import Observer


class GradientWatch:
    """The hook on one tensor: whose sites its gradient belongs to, and in which micro-step its forward ran."""

    __slots__ = ("_arrived", "micro_step", "path", "sites")

    def __init__(
        self, arrived: Callable[[GradientWatch, torch.Tensor], None], path: str, micro_step: int | None
    ) -> None:
        self._arrived = arrived
        self.path = path
        self.micro_step = micro_step
        self.sites: list[tuple[int, frozenset[str]]] = []

    def __call__(self, gradient: torch.Tensor) -> None:
        self._arrived(self, gradient)


class Gradients:
    """Watches the gradients of tensors for the length of one step."""

    def __init__(self, observer: Observer, failures: Failures) -> None:
        self.failures = failures
        self.arrivals = 0
        self._observer = observer
        self._handles: list[Any] = []
        self._micro_step_of: dict[int, int] = {}

    def watch_output(self, tensor: torch.Tensor, path: str, site: int, what: frozenset[str], micro_step: int) -> None:
        """Records the gradient of a module's output; several modules may give the same tensor."""
        self._watch(tensor, path, (site, what), micro_step, join=True)

    def watch_input(self, tensor: torch.Tensor, path: str, site: int, what: frozenset[str], micro_step: int) -> None:
        """Records the gradient of a module's input, unless another site does so already."""
        self._watch(tensor, path, (site, what), micro_step, join=False)

    def watch_parameter(self, parameter: torch.Tensor, path: str, sites: list[tuple[int, frozenset[str]]]) -> None:
        """Records the gradient that each backward pass adds to a parameter, before it is added."""
        watch = GradientWatch(self._hook, path, None)
        watch.sites.extend(sites)
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
        self.arrivals = 0

    def _watch(
        self, tensor: torch.Tensor, path: str, site: tuple[int, frozenset[str]], micro_step: int, *, join: bool
    ) -> None:
        if not tensor.requires_grad or not torch.is_grad_enabled() or is_transformed(tensor):
            return
        seen = self._observer.seen.find(tensor) or self._observer.seen.add(tensor)
        if seen is not None and seen.watch is not None:
            if join:
                seen.watch.sites.append(site)
            return
        watch = GradientWatch(self._hook, path, micro_step)
        watch.sites.append(site)
        self._handles.append(tensor.register_hook(watch))
        if seen is not None:
            seen.watch = watch

    def _hook(self, watch: GradientWatch, gradient: torch.Tensor) -> None:
        if self._handles:
            self.arrived(watch, gradient)

    @guarded
    def arrived(self, watch: GradientWatch, gradient: torch.Tensor) -> None:
        """Records a gradient at every site of its tensor."""
        micro_step = watch.micro_step
        if micro_step is None:
            micro_step = self.micro_step_of_backward()
        else:
            self._micro_step_of[torch._C._current_graph_task_id()] = micro_step
        self.arrivals += 1
        for site, what in watch.sites:
            self._observer.gradient(site, gradient, what, micro_step)
