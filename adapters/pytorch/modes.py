"""Puts a dispatch mode on the stack of modes and takes it off again, whatever the user put above it since."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack


def install(mode: TorchDispatchMode) -> None:
    """Makes the mode the innermost active one on this thread."""
    if mode not in _get_current_dispatch_mode_stack():
        mode.__enter__()


def uninstall(mode: TorchDispatchMode) -> bool:
    """Takes the mode off the stack and leaves the others as they are; tells whether it was there.

    Modes that the user put on top of it leave and enter again in torch's own books, without their own side effects.
    """
    stack = _get_current_dispatch_mode_stack()
    if mode not in stack:
        return False
    above = stack[len(stack) - stack[::-1].index(mode) :]
    for other in reversed(above):
        TorchDispatchMode.__exit__(other, None, None, None)
    mode.__exit__(None, None, None)
    for other in above:
        TorchDispatchMode.__enter__(other)
    return True
