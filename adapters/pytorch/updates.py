"""Records what an optimizer's step leaves: its state, the parameters, and by how much it moved them.

Nothing of a whole parameter is kept from before the step: updates are seen on a fixed sample (``samples``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from msprobe.adapters.pytorch.guard import guarded
from msprobe.adapters.pytorch.isolation import isolated
from msprobe.adapters.pytorch.placed import of_each, plain_of
from msprobe.adapters.pytorch.samples import agreement, change, sample
from msprobe.adapters.pytorch.structures import places
from msprobe.core.sites import Direction, Role

if TYPE_CHECKING:
    from msprobe.adapters.pytorch.guard import Failures
    from msprobe.adapters.pytorch.holdings import Holding, Holdings, Named
    from msprobe.adapters.pytorch.nodes import WatchedModule
    from msprobe.adapters.pytorch.observing import Observer
    from msprobe.core.options import RecordOptions

#: What optimizers call the moving average of gradients.
_MOMENTUM = ("exp_avg", "momentum_buffer", "moment")
#: What they call the count of a parameter's steps.
_COUNT = "step"


@dataclass(eq=False, slots=True)
class _Before:
    """The samples of a parameter from before the step."""

    holding: Holding
    names: list[Named]
    value: torch.Tensor | None

    @property
    def parameter(self) -> torch.Tensor:
        """What the optimizer updates."""
        return self.holding.updated

    def part(self, tensor: torch.Tensor) -> torch.Tensor:
        """Gives what of a tensor that the optimizer keeps belongs to the parameter."""
        return plain_of(self.holding.part(tensor))


class Updates:
    """Sees the parameters that an optimizer updates, before its step and after."""

    def __init__(self, observer: Observer, holdings: Holdings, options: RecordOptions, failures: Failures) -> None:
        self.failures = failures
        self._holdings = holdings
        self.options = options
        self._observer = observer
        self._recorder = observer.recorder
        self._under_way: list[_Before] = []

    @property
    def wanted(self) -> bool:
        """Tells whether anything is to be recorded here."""
        return self.options.optimizer_state or self.options.updated_parameters or self.options.updates

    def begin(self, watched_modules: Iterable[tuple[WatchedModule, torch.nn.Module]], optimizer: Any) -> None:
        """Keeps samples of what the optimizer is about to update."""
        self._under_way = []
        if not self.wanted:
            return
        updated = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        for holding, names in self._holdings.named(watched_modules):
            kept = [(owner, name) for owner, name in names if owner.what]
            if kept and id(holding.updated) in updated and holding.gradient() is not None:
                self._under_way.append(_Before(holding, kept, None))
                self.sample(kept[0][0], self._under_way[-1], optimizer)

    def end(self, optimizer: Any) -> None:
        """Records what the optimizer has left."""
        under_way, self._under_way = self._under_way, []
        for before in under_way:
            self.left(before.names[0][0], before, optimizer)
        if under_way and self.options.optimizer_state:
            self.count(under_way[0].names[0][0], optimizer.state.get(under_way[0].parameter, {}))

    @guarded
    def sample(self, watched: WatchedModule, before: _Before, optimizer: Any) -> None:
        """Keeps a sample of a parameter, and sees whether its gradient points where its momentum does."""
        if not self.options.updates:
            return
        with isolated():
            before.value = sample(before.part(before.parameter))
            momentum, gradient = _momentum(optimizer.state.get(before.parameter)), before.parameter.grad
            if momentum is None or gradient is None or momentum.shape != before.parameter.shape:
                return
            seen, gathered = sample(before.part(momentum)), sample(before.part(gradient))
            if seen is None or gathered is None or seen.is_complex() or seen.shape != gathered.shape:
                return
            agrees = agreement(gathered, seen)
        self._derived(before, "agreement", agrees)

    @guarded
    def left(self, watched: WatchedModule, before: _Before, optimizer: Any) -> None:
        """Records the state of one parameter, its value, and its change."""
        options, parameter = self.options, before.parameter
        if options.optimizer_state:
            self._state(before, optimizer.state.get(parameter, {}))
        if options.updated_parameters:
            for owner, name in before.names:
                site = self._recorder.site(owner.node, Direction.UPDATE, Role.PARAMETER, name, 0)
                self._observer.value(site, before.holding.part(parameter), owner.what, 0)
        if before.value is None:
            return
        with isolated():
            after = sample(before.part(parameter))
            if after is None or after.shape != before.value.shape:
                return
            moved, relative = change(before.value, after)
        self._derived(before, "update", moved)
        self._derived(before, "ratio", relative)

    @guarded
    def count(self, watched: WatchedModule, state: Any) -> None:
        """Notes how many steps the optimizer counts."""
        steps = state.get(_COUNT) if isinstance(state, dict) else None
        if isinstance(steps, int | float | torch.Tensor):
            self._recorder.scalar("optimizer_step", steps)

    def _state(self, before: _Before, state: Any) -> None:
        for key, value in state.items():
            if key == _COUNT:
                continue
            for path, tensor in places(value, str(key)):
                if not isinstance(tensor, torch.Tensor):
                    continue
                for owner, name in before.names:
                    site = self._recorder.site(owner.node, Direction.UPDATE, Role.STATE, f"{name}.{path}", 0)
                    self._observer.value(site, before.holding.part(tensor), owner.what, 0)

    def _derived(self, before: _Before, what: str, tensor: torch.Tensor) -> None:
        part = of_each(before.holding.part(before.parameter), tensor)
        for owner, name in before.names:
            site = self._recorder.site(owner.node, Direction.UPDATE, Role.DERIVED, f"{name}.{what}", 0)
            self._observer.value(site, part, owner.what, 0)


def _momentum(state: Any) -> torch.Tensor | None:
    if isinstance(state, dict):
        for key in _MOMENTUM:
            found = state.get(key)
            if isinstance(found, torch.Tensor):
                return found
    return None
