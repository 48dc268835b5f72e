"""Records parameters, buffers and gradients of parameters, each once a step and under each of its names."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Final

import torch
from torch.nn.parameter import is_lazy

from msprobe.adapters.pytorch.dtensors import local_of
from msprobe.adapters.pytorch.gradients import GradientPlace
from msprobe.adapters.pytorch.guard import guarded
from msprobe.adapters.pytorch.holdings import Plain, is_flat
from msprobe.adapters.pytorch.placed import Placed, plain_of
from msprobe.adapters.pytorch.reduced import ReducedGradients
from msprobe.adapters.pytorch.seen import is_transformed
from msprobe.core.sites import Direction, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from msprobe.adapters.pytorch.gradients import Gradients
    from msprobe.adapters.pytorch.guard import Failures
    from msprobe.adapters.pytorch.holdings import Holding, Holdings, Named
    from msprobe.adapters.pytorch.nodes import WatchedModule
    from msprobe.adapters.pytorch.observing import Observer
    from msprobe.core.options import RecordOptions

_CHECKSUMS: Final = frozenset({"checksums"})


class Parameters:
    """The parameters and buffers of the watched modules, in the present step.

    Where a wrapper holds a parameter (``holdings``), the record of it is what this rank keeps, a shard; what modules
    compute with is checked against that by a checksum, its gradient is this rank's own, and the reduced one is recorded
    when the reduction is complete.
    """

    def __init__(
        self,
        observer: Observer,
        gradients: Gradients,
        holdings: Holdings,
        options: RecordOptions,
        failures: Failures,
    ) -> None:
        self.failures = failures
        self.holdings = holdings
        self._observer = observer
        self._recorder = observer.recorder
        self._gradients = gradients
        self._options = options
        self._reduced = ReducedGradients(observer, failures)
        self._values_seen: set[int] = set()
        self._hooked: dict[int, weakref.ref[torch.Tensor]] = {}
        self._names: dict[int, list[Named]] = {}
        self._held: list[tuple[Holding, list[Named]]] = []
        self._watching = False
        self._updates_seen: set[int] = set()
        self._first_step = True
        holdings.on_reduced = self.reduced

    def use(self, options: RecordOptions) -> None:
        """Goes on with other options; called between steps."""
        self._options = options

    def reduced(self) -> None:
        """Hears from a wrapper that a reduction is complete."""
        if self._watching:
            self._reduced.now(self._held, self._recorder.micro_step, told=True)

    def end_step(self) -> None:
        """Begins afresh for the next step."""
        self._first_step = self._first_step and not self._values_seen
        self._values_seen.clear()
        self._hooked.clear()
        self._names.clear()
        self._held.clear()
        self._watching = False
        self._updates_seen.clear()
        self._reduced.end_step()

    def record_values(self, watched: WatchedModule, module: torch.nn.Module, micro_step: int) -> None:
        """Records the module's own parameters and buffers at its first call of a step."""
        if watched.number not in self._values_seen and not _waits_for_shapes(module):
            self._values_seen.add(watched.number)
            self.values(watched, module, micro_step)
            if self._watching and not self._is_watched(module):
                self._watch_gradients([(watched, module)])
        elif self._observer.tracer is not None:
            self._trace(watched, module)
        if self._watching and self.holdings:
            self._watch_used(module)

    @guarded
    def values(self, watched: WatchedModule, module: torch.nn.Module, micro_step: int) -> None:
        """Records the module's own parameters and buffers."""
        what = self._what(watched)
        if not what:
            return
        tracer = self._observer.tracer
        for role, name, part, used in self._own(module):
            site = self._recorder.site(watched.node, Direction.FORWARD, role, name, 0)
            self._observer.value(site, part, what, micro_step)
            if tracer is not None and used is not None:
                tracer.seen_parameter(site, used)
        if "checksums" in what:
            for name, holding in self.holdings.of(module).items():
                self._gathered(watched, name, holding, micro_step)

    def _gathered(self, watched: WatchedModule, name: str, holding: Holding, micro_step: int) -> None:
        """Records a checksum of a gathered parameter, to be checked against its shards and among ranks."""
        used = holding.used()
        if used is not None and used is not holding.updated:
            site = self._recorder.site(watched.node, Direction.FORWARD, Role.DERIVED, f"{name}.gathered", 0)
            self._observer.value(site, holding.group.replicated(used), _CHECKSUMS, micro_step)

    def watch_gradients(self, watched_modules: Iterable[tuple[WatchedModule, torch.nn.Module]]) -> None:
        """Hooks every parameter that gathers a gradient, once a step."""
        if self._options.gradients and not self._watching and torch.is_grad_enabled():
            self._watching = True
            self._watch_gradients(watched_modules)

    def _watch_gradients(self, watched_modules: Iterable[tuple[WatchedModule, torch.nn.Module]]) -> None:
        for holding, names in self.holdings.named(watched_modules):
            if not isinstance(holding, Plain):
                if id(holding) not in self._names:
                    self._names[id(holding)] = names
                    self._held.append((holding, names))
            elif self._is_new(id(holding.updated), holding.updated):
                self.hook(names[0][0], holding.updated, names, holding)

    def _is_watched(self, module: torch.nn.Module) -> bool:
        """Tells whether every parameter of the module itself is hooked already."""
        for parameter in module._parameters.values():
            if parameter is not None:
                known = self._hooked.get(id(parameter))
                if known is None or known() is not parameter:
                    return False
        return not self.holdings

    def _watch_used(self, module: torch.nn.Module) -> None:
        """Hooks what a module computes with where that is not its parameters: it may be new at every call."""
        for holding in self.holdings.of(module).values():
            used = holding.used()
            names = self._names.get(id(holding))
            if used is None or names is None or not holding.updated.requires_grad:
                continue
            if self._is_new(id(holding), used):
                self.hook(names[0][0], used, names, holding)

    def _is_new(self, key: int, tensor: torch.Tensor) -> bool:
        """Tells whether a tensor can be hooked and is not yet."""
        known = self._hooked.get(key)
        if (known is not None and known() is tensor) or not _can_be_hooked(tensor):
            return False
        self._hooked[key] = weakref.ref(tensor)
        return True

    @guarded
    def hook(self, watched: WatchedModule, parameter: torch.Tensor, names: list[Named], holding: Holding) -> None:
        """Puts one hook on a parameter, for all its names."""
        places = [
            GradientPlace(owner.node, Direction.BACKWARD, Role.GRADIENT, name, 0, owner.what)
            for owner, name in names
            if owner.what
        ]
        if not places:
            return
        if isinstance(holding, Plain):
            self._gradients.watch_parameter(parameter, watched.path, places)
            return
        arrived = partial(self._reduced.expect, holding, self._held)
        placed = holding.group.unreduced
        self._gradients.watch_parameter(parameter, watched.path, places, placed=placed, after=arrived)

    def record_updates(
        self, watched_modules: Iterable[tuple[WatchedModule, torch.nn.Module]], only: set[int] | None
    ) -> None:
        """Records the accumulated gradients, of the parameters in ``only`` or of all, once a step."""
        if not self._options.gradients:
            return
        for holding, names in self.holdings.named(watched_modules):
            key = id(holding.updated if isinstance(holding, Plain) else holding)
            if key not in self._updates_seen and (only is None or id(holding.updated) in only):
                self.update(names[0][0], holding, names, key)

    @guarded
    def update(self, watched: WatchedModule, holding: Holding, names: list[Named], key: int) -> None:
        """Records what a parameter has gathered."""
        gradient = None if is_lazy(holding.updated) else holding.gradient()
        if gradient is None:
            return
        self._updates_seen.add(key)
        counted = not self._options.scalars
        for owner, name in names:
            if not owner.what:
                continue
            site = self._recorder.site(owner.node, Direction.UPDATE, Role.GRADIENT, name, 0)
            part = self._observer.consumed(owner.path, holding.updated, gradient)
            seq = self._observer.update(site, part, owner.what)
            if not counted and seq >= 0:
                counted = True
                self._recorder.norm_of(norm_name(gradient), seq)
            if self._observer.tracer is not None:
                self._observer.tracer.seen_update(site, plain_of(gradient))

    def _what(self, watched: WatchedModule) -> frozenset[str]:
        """Parameters carry checksums in the first recorded step: equal content is the surest way to match them."""
        more = {"checksums", "vectors"} if self._options.vectors else {"checksums"}
        return watched.what | more if watched.what and self._first_step else watched.what

    def _own(self, module: torch.nn.Module) -> Iterator[tuple[Role, str, torch.Tensor | Placed, torch.Tensor | None]]:
        """Gives what this rank keeps of the module's parameters and buffers, and what the module computes with."""
        if self._options.parameters:
            held = self.holdings.of(module)
            for name, parameter in module._parameters.items():
                if parameter is not None and name not in held and not is_flat(parameter):
                    yield Role.PARAMETER, name, parameter, parameter
            for name, holding in held.items():
                stored = holding.stored()
                if stored is not None:
                    yield Role.PARAMETER, name, stored, holding.used()
        if self._options.buffers:
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    yield Role.BUFFER, name, buffer, buffer

    @guarded
    def _trace(self, watched: WatchedModule, module: torch.nn.Module) -> None:
        tracer = self._observer.tracer
        if tracer is None or not watched.what:
            return
        for role, name, _, used in self._own(module):
            if used is not None:
                tracer.seen_parameter(self._recorder.site(watched.node, Direction.FORWARD, role, name, 0), used)


def norm_name(gradient: torch.Tensor | Placed) -> str:
    """Gives the scalar that a gradient's norm counts into: a sharded one tells of this rank's part only."""
    part = local_of(gradient)
    whole = not isinstance(part, Placed) or all(placement.kind == "replicate" for placement in part.layout.placements)
    return "grad_norm_recomputed" if whole else "grad_norm_recomputed_local"


def _can_be_hooked(parameter: torch.Tensor) -> bool:
    return parameter.requires_grad and not is_lazy(parameter) and not is_transformed(parameter)


def _waits_for_shapes(module: torch.nn.Module) -> bool:
    tensors = (*module._parameters.values(), *module._buffers.values())
    return any(tensor is not None and is_lazy(tensor) for tensor in tensors)
