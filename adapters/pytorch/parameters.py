"""Records parameters, buffers and gradients of parameters, each once a step and under each of its names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn.parameter import is_lazy

from msprobe.adapters.pytorch.gradients import GradientPlace
from msprobe.adapters.pytorch.guard import guarded
from msprobe.adapters.pytorch.seen import is_transformed
from msprobe.core.sites import Direction, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from msprobe.adapters.pytorch.gradients import Gradients
    from msprobe.adapters.pytorch.guard import Failures
    from msprobe.adapters.pytorch.nodes import WatchedModule
    from msprobe.adapters.pytorch.observing import Observer
    from msprobe.core.options import RecordOptions

Named = tuple["WatchedModule", str]


class Parameters:
    """The parameters and buffers of the watched modules, in the present step."""

    def __init__(self, observer: Observer, gradients: Gradients, options: RecordOptions, failures: Failures) -> None:
        self.failures = failures
        self._observer = observer
        self._recorder = observer.recorder
        self._gradients = gradients
        self._options = options
        self._values_seen: set[int] = set()
        self._hooked: set[int] = set()
        self._watching = False
        self._updates_seen: set[int] = set()
        self._first_step = True

    def end_step(self) -> None:
        """Begins afresh for the next step."""
        self._first_step = self._first_step and not self._values_seen
        self._values_seen.clear()
        self._hooked.clear()
        self._watching = False
        self._updates_seen.clear()

    def record_values(self, watched: WatchedModule, module: torch.nn.Module, micro_step: int) -> None:
        """Records the module's own parameters and buffers at its first call of a step."""
        if watched.number not in self._values_seen and not _waits_for_shapes(module):
            self._values_seen.add(watched.number)
            self.values(watched, module, micro_step)
            if self._watching:
                self._watch_gradients([(watched, module)])
        elif self._observer.tracer is not None:
            self._trace(watched, module)

    @guarded
    def values(self, watched: WatchedModule, module: torch.nn.Module, micro_step: int) -> None:
        """Records the module's own parameters and buffers."""
        what = self._what(watched)
        if not what:
            return
        for role, name, tensor in self._own(module):
            site = self._recorder.site(watched.node, Direction.FORWARD, role, name, 0)
            self._observer.value(site, tensor, what, micro_step)
            if self._observer.tracer is not None:
                self._observer.tracer.seen_parameter(site, tensor)

    def watch_gradients(self, watched_modules: Iterable[tuple[WatchedModule, torch.nn.Module]]) -> None:
        """Hooks every parameter that gathers a gradient, once a step."""
        if self._options.gradients and not self._watching and torch.is_grad_enabled():
            self._watching = True
            self._watch_gradients(watched_modules)

    def _watch_gradients(self, watched_modules: Iterable[tuple[WatchedModule, torch.nn.Module]]) -> None:
        for parameter, names in by_tensor(watched_modules):
            if id(parameter) not in self._hooked and _can_be_hooked(parameter):
                self._hooked.add(id(parameter))
                self.hook(names[0][0], parameter, names)

    @guarded
    def hook(self, watched: WatchedModule, parameter: torch.Tensor, names: list[Named]) -> None:
        """Puts one hook on a parameter, for all its names."""
        places = [
            GradientPlace(owner.node, Direction.BACKWARD, Role.GRADIENT, name, 0, owner.what)
            for owner, name in names
            if owner.what
        ]
        if places:
            self._gradients.watch_parameter(parameter, watched.path, places)

    def record_updates(
        self, watched_modules: Iterable[tuple[WatchedModule, torch.nn.Module]], only: set[int] | None
    ) -> None:
        """Records the accumulated gradients, of the parameters in ``only`` or of all, once a step."""
        if not self._options.gradients:
            return
        for parameter, names in by_tensor(watched_modules):
            if id(parameter) not in self._updates_seen and (only is None or id(parameter) in only):
                self.update(names[0][0], parameter, names)

    @guarded
    def update(self, watched: WatchedModule, parameter: torch.Tensor, names: list[Named]) -> None:
        """Records what a parameter has gathered."""
        gradient = None if is_lazy(parameter) else parameter.grad
        if gradient is None:
            return
        self._updates_seen.add(id(parameter))
        counted = not self._options.scalars
        for owner, name in names:
            if not owner.what:
                continue
            site = self._recorder.site(owner.node, Direction.UPDATE, Role.GRADIENT, name, 0)
            seq = self._observer.value(site, gradient, owner.what, 0)
            if not counted and seq >= 0:
                counted = True
                self._recorder.norm_of(norm_name(gradient), seq)
            if self._observer.tracer is not None:
                self._observer.tracer.seen_update(site, gradient)

    def _what(self, watched: WatchedModule) -> frozenset[str]:
        """Parameters carry checksums in the first recorded step: equal content is the surest way to match them."""
        return watched.what | {"checksums"} if watched.what and self._first_step else watched.what

    def _own(self, module: torch.nn.Module) -> Iterator[tuple[Role, str, torch.Tensor]]:
        if self._options.parameters:
            for name, parameter in module._parameters.items():
                if parameter is not None:
                    yield Role.PARAMETER, name, parameter
        if self._options.buffers:
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    yield Role.BUFFER, name, buffer

    @guarded
    def _trace(self, watched: WatchedModule, module: torch.nn.Module) -> None:
        tracer = self._observer.tracer
        if tracer is None or not watched.what:
            return
        for role, name, tensor in self._own(module):
            tracer.seen_parameter(self._recorder.site(watched.node, Direction.FORWARD, role, name, 0), tensor)


def by_tensor(
    watched_modules: Iterable[tuple[WatchedModule, torch.nn.Module]],
) -> Iterator[tuple[torch.Tensor, list[Named]]]:
    """Gives each parameter with all its names: tied weights have several."""
    found: dict[int, tuple[torch.Tensor, list[Named]]] = {}
    for watched, module in watched_modules:
        for name, parameter in module._parameters.items():
            if parameter is not None:
                found.setdefault(id(parameter), (parameter, []))[1].append((watched, name))
    yield from found.values()


def norm_name(gradient: torch.Tensor) -> str:
    """Gives the scalar that a gradient's norm counts into: a sharded one tells of this rank's part only."""
    placements = getattr(gradient, "placements", ())
    return "grad_norm_recomputed" if all(p.is_replicate() for p in placements) else "grad_norm_recomputed_local"


def _can_be_hooked(parameter: torch.Tensor) -> bool:
    return parameter.requires_grad and not is_lazy(parameter) and not is_transformed(parameter)


def _waits_for_shapes(module: torch.nn.Module) -> bool:
    tensors = (*module._parameters.values(), *module._buffers.values())
    return any(tensor is not None and is_lazy(tensor) for tensor in tensors)
