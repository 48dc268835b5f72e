"""Hears of optimizers' steps, and of those that a gradient scaler leaves out."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from msprobe.core.errors import RecordingError

if TYPE_CHECKING:
    from collections.abc import Callable


class OptimizerSteps:
    """Calls ``before`` and ``after`` around each step of the given optimizer, or of any when none is given.

    ``scaled`` is called with a gradient scaler before the step that it makes (the program waits for the device there
    anyhow), ``skipped`` with one that found non-finite gradients and left a step out.
    """

    def __init__(
        self,
        optimizer: Any,
        *,
        before: Callable[[Any], None],
        after: Callable[[Any], None],
        skipped: Callable[[Any], None],
        scaled: Callable[[Any], None],
    ) -> None:
        self._steps = 0
        self._undo: list[Callable[[], None]] = []
        self._before, self._after, self._skipped, self._scaled = before, after, skipped, scaled
        if optimizer is None:
            self._undo.append(register_optimizer_step_pre_hook(self._begin).remove)
            self._undo.append(register_optimizer_step_post_hook(self._end).remove)
        else:
            optimizer = unwrapped(optimizer)
            self._undo.append(optimizer.register_step_pre_hook(self._begin).remove)
            self._undo.append(optimizer.register_step_post_hook(self._end).remove)
        self._watch_scaler()

    def remove(self) -> None:
        """Stops hearing."""
        while self._undo:
            self._undo.pop()()

    def _begin(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._steps += 1
        self._before(optimizer)

    def _end(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._after(optimizer)

    def _watch_scaler(self) -> None:
        """Wraps ``GradScaler.step``: torch has no hook for a step that is left out."""
        scaler_class: Any = torch.amp.GradScaler
        original = scaler_class.step

        @functools.wraps(original)
        def step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before = self._steps
            if self._undo and scaler.is_enabled():
                self._scaled(scaler)
            result = original(scaler, optimizer, *args, **kwargs)
            if self._undo and self._steps == before and scaler.is_enabled():
                self._skipped(scaler)
            return result

        def restore() -> None:
            if scaler_class.step is step:
                scaler_class.step = original

        scaler_class.step = step
        self._undo.append(restore)


def unwrapped(optimizer: Any) -> torch.optim.Optimizer:
    """Gives the torch optimizer inside a wrapper such as accelerate's.

    Raises:
        RecordingError: It holds none.
    """
    for _ in range(4):
        if isinstance(optimizer, torch.optim.Optimizer):
            return optimizer
        optimizer = getattr(optimizer, "optimizer", None)
    raise RecordingError("optimizer= is no torch.optim.Optimizer. Leave it out and call probe.step() after each step.")


def settings_of(optimizer: Any) -> dict[str, object]:
    """Gives an optimizer's class and the settings of each of its groups (lr, betas, weight_decay ...) by name.

    A learning rate that lies on a device is left out: reading it would wait for the device.
    """
    settings: dict[str, object] = {"optimizer": type(optimizer).__name__}
    groups = optimizer.param_groups
    for index, group in enumerate(groups):
        prefix = f"group {index} " if len(groups) > 1 else ""
        settings[f"{prefix}parameters"] = len(group["params"])
        for name, value in group.items():
            if isinstance(value, torch.Tensor) and value.numel() == 1 and value.device.type == "cpu":
                settings[f"{prefix}{name}"] = value.item()
            elif isinstance(value, bool | int | float | str | tuple | None):
                settings[f"{prefix}{name}"] = value
    return settings


def parameter_ids(optimizer: Any) -> set[int]:
    """Gives the identities of the parameters that an optimizer updates."""
    return {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
