"""Puts a dispatch mode on the stack of modes and takes it off again, whatever the user put above it since.

Torch keeps two books: the stack of modes, and a flag that there are any. Leaving ``torch.inference_mode`` puts the flag
back to what it was on entering. A mode that went on the stack before and was taken off inside would leave the flag set
over an empty stack, and the next operator without tensors would fail. So a placeholder, which does nothing, stays on it
until inference mode has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils.weak import WeakIdKeyDictionary

from msprobe.adapters.pytorch.dynamo import UncompiledMode

#: Modes that were put on the stack in inference mode.
_born_in_inference: Any = WeakIdKeyDictionary()


class _Placeholder(UncompiledMode):
    """Runs every operator as it is."""

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return func(*args, **(kwargs or {}))


def install(mode: TorchDispatchMode) -> None:
    """Makes the mode the innermost active one on this thread."""
    stack = _get_current_dispatch_mode_stack()
    if mode in stack:
        return
    placeholders = [other for other in stack if isinstance(other, _Placeholder)]
    if torch.is_inference_mode_enabled() and not placeholders:
        _born_in_inference[mode] = True
    else:
        _born_in_inference.pop(mode, None)
    mode.__enter__()
    for placeholder in placeholders:
        _take_off(placeholder)


def uninstall(mode: TorchDispatchMode) -> bool:
    """Takes the mode off the stack and leaves the others as they are; tells whether it was there.

    Modes that the user put on top of it leave and enter again in torch's own books, without their own side effects.
    """
    stack = _get_current_dispatch_mode_stack()
    if mode not in stack:
        return False
    if len(stack) == 1 and torch.is_inference_mode_enabled() and mode not in _born_in_inference:
        _Placeholder().__enter__()  # type: ignore[no-untyped-call]
    _take_off(mode)
    return True


def settle() -> None:
    """Takes off a placeholder that is no longer needed."""
    if torch.is_inference_mode_enabled():
        return
    for other in _get_current_dispatch_mode_stack():
        if isinstance(other, _Placeholder):
            _take_off(other)


def _take_off(mode: TorchDispatchMode) -> None:
    stack = _get_current_dispatch_mode_stack()
    above = stack[len(stack) - stack[::-1].index(mode) :]
    for other in reversed(above):
        TorchDispatchMode.__exit__(other, None, None, None)
    mode.__exit__(None, None, None)
    for other in above:
        TorchDispatchMode.__enter__(other)
