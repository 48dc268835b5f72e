"""Records any tensor, anywhere, under a name that the user gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch

if TYPE_CHECKING:
    from msprobe.adapters.pytorch.session import Session

T = TypeVar("T")

#: Recordings under way.
active: list[Session] = []


def save(tensor: T, name: str) -> T:
    """Records a tensor, or the tensors of a structure, and their gradients; gives back what it was given.

    Without a recording, on a step that is not recorded and inside compiled code it does nothing.
    """
    if active and not torch.compiler.is_compiling():
        for session in active:
            session.save(tensor, name)
    return tensor
