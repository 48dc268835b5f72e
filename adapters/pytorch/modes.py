"""Puts a dispatch mode on the stack of modes and takes it off again, whatever the user put above it since."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.utils._python_dispatch import _get_current_dispatch_mode_stack, _pop_mode, _push_mode

if TYPE_CHECKING:
    from torch.utils._python_dispatch import TorchDispatchMode


def install(mode: TorchDispatchMode) -> None:
    """Makes the mode the innermost active one on this thread."""
    if mode not in _get_current_dispatch_mode_stack():
        mode.__enter__()


def uninstall(mode: TorchDispatchMode) -> None:
    """Takes the mode off the stack and leaves the others as they are; does nothing when it is not there."""
    stack = _get_current_dispatch_mode_stack()
    if mode not in stack:
        return
    above = stack[len(stack) - stack[::-1].index(mode) :]
    for _ in above:
        _pop_mode()
    mode.__exit__(None, None, None)
    for other in above:
        _push_mode(other)
