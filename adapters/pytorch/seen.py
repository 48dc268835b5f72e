"""Remembers which tensors have been recorded, so that one content is measured once.

A tensor is known again by being the same object, held through a weak reference (which keeps nothing alive and, unlike
an ``id``, cannot be mistaken for a later object), with the same version counter, memory and shape. Inference tensors
have no version counter: a kernel that works in place would go unnoticed, so they are never taken for known.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from msprobe.adapters.pytorch.gradients import GradientWatch
    from msprobe.adapters.pytorch.parallel.spreads import Spread
    from msprobe.core.placement import Layout

Content = tuple[int, int, "torch.Size", tuple[int, ...]]


@dataclass(slots=True)
class Seen:
    """A tensor that was recorded: by which record, and who waits for its gradient."""

    reference: weakref.ref[torch.Tensor]
    content: Content
    seq: int | None = None
    #: How that record says the tensor lies in the whole one: the same numbers tell other things of another layout.
    layout: Layout | None = None
    watch: GradientWatch | None = None
    #: How it lies in the whole tensor, where that is known.
    spread: Spread | None = None


#: Tells whether a tensor stands for others inside a ``torch.func`` transform, with no values and hooks of its own.
is_transformed: Callable[[torch.Tensor], bool] = torch._C._functorch.is_functorch_wrapped_tensor


class SeenTensors:
    """The tensors recorded in the present step."""

    def __init__(self) -> None:
        self._seen: dict[int, Seen] = {}

    def __len__(self) -> int:
        return len(self._seen)

    def look(self, tensor: torch.Tensor) -> Seen | None:
        """Gives what is known of the tensor, afresh when it is new or its content may have changed.

        None when its content cannot be followed.
        """
        content = _content(tensor)
        seen = self._seen.get(id(tensor))
        if seen is not None and seen.content == content and seen.reference() is tensor:
            return seen
        if content is None:
            return None
        seen = self._seen[id(tensor)] = Seen(weakref.ref(tensor), content)
        return seen

    def forget(self, tensor: torch.Tensor) -> None:
        """Forgets the content of a tensor that has changed in a way that its version counter may not tell."""
        seen = self._seen.get(id(tensor))
        if seen is not None:
            seen.seq = None

    def prune(self) -> None:
        """Forgets tensors that are no longer there: a step of inference may have any number of passes."""
        for number in [number for number, seen in self._seen.items() if seen.reference() is None]:
            del self._seen[number]

    def clear(self) -> None:
        """Forgets everything, at the end of a step."""
        self._seen.clear()


def _content(tensor: torch.Tensor) -> Content | None:
    if tensor.is_inference():
        return None
    try:
        return tensor._version, tensor.data_ptr(), tensor.shape, tensor.stride()
    except (RuntimeError, NotImplementedError):  # sparse, fake, nested and wrapped tensors have no plain memory
        return None
