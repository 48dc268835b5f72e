"""The tensor that a distributed one was wrapped around: its gradient is the one that a single process has.

Styles of tensor parallelism wrap a module's input into a distributed tensor. The gradient of the wrapped one is that of
this module alone; that of the tensor inside is summed over all its consumers, as in a model without wrappers.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final

from msprobe.adapters.pytorch.dtensors import is_dtensor

if TYPE_CHECKING:
    import torch

#: Autograd nodes that only wrap a tensor or move its parts.
_WRAPPING: Final = ("_FromTorchTensorBackward", "RedistributeBackward")

#: An autograd node and which of its outputs the tensor is.
Origin = tuple[Any, int]


def origin_of(tensor: torch.Tensor) -> Origin | None:
    """Gives the node that made what a distributed tensor was wrapped around; None where it was not wrapped."""
    if not is_dtensor(tensor) or tensor.grad_fn is None:
        return None
    node, number = tensor.grad_fn, tensor.output_nr
    wrapped = False
    while node is not None and node.name().endswith(_WRAPPING):
        found = next(((inner, n) for inner, n in node.next_functions if inner is not None), None)
        if found is None:
            return None
        (node, number), wrapped = found, True
    return (node, number) if wrapped and node is not None else None


def is_wrapped_directly(tensor: torch.Tensor) -> bool:
    """Tells whether the parts of a distributed tensor lie as those of the tensor that it was wrapped around."""
    return tensor.grad_fn is not None and tensor.grad_fn.name().endswith(_WRAPPING[0])


class KnownOrigins:
    """The nodes whose outputs are watched already: of tensors that are still there."""

    def __init__(self) -> None:
        self._tensors: dict[tuple[int, int], weakref.ref[torch.Tensor]] = {}

    def add(self, tensor: torch.Tensor) -> None:
        """Notes that the gradient of a tensor is watched."""
        if tensor.grad_fn is not None:
            self._tensors[id(tensor.grad_fn), tensor.output_nr] = weakref.ref(tensor)

    def holds(self, origin: Origin) -> bool:
        """Tells whether the gradient of a node's output is watched."""
        reference = self._tensors.get((id(origin[0]), origin[1]))
        tensor = reference() if reference is not None else None
        return tensor is not None and tensor.grad_fn is origin[0]

    def clear(self) -> None:
        """Forgets everything, at the end of a step."""
        self._tensors.clear()
