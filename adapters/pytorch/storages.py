"""What is known about each storage: the sites it was computed from, whether it was written, when it last changed.

A storage is known by its Python object, which lives as long as the storage does, through a weak reference. (Torch's own
``StorageWeakRef`` would keep the memory itself.) Views and the tensors that autograd saved share the storage, so what
is known is found again in backward.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

#: A stretch of a storage, the same for all views that hold the same elements in the same order.
Stretch = tuple[int, ...]

_PLAIN = (torch.Tensor, torch.nn.Parameter)
#: Storages that have gone are swept when the table has grown to twice what was alive, and never below this.
_SWEEP_FROM = 4096


class Storage:
    """One storage of one tensor or of many views."""

    __slots__ = ("changes", "labels", "nbytes", "records", "reference", "sources", "spreads", "unwritten", "written")

    def __init__(self, reference: Any, nbytes: int) -> None:
        self.reference = reference
        self.nbytes = nbytes
        #: What all of it was computed from; None when no operator or hook has met it yet.
        self.sources: frozenset[int] | None = None
        #: Stretches with sources of their own.
        self.labels: dict[Stretch, frozenset[int]] | None = None
        #: How often operators wrote it.
        self.changes = 0
        #: Bytes that nobody has written yet, and the stretches that somebody has.
        self.unwritten = 0
        self.written: set[Stretch] | None = None
        #: Records of its content: see ``contents``.
        self.records: dict[Any, Any] | None = None
        #: How stretches of it are spread over ranks: see ``parallel.spreading``.
        self.spreads: dict[Stretch, Any] | None = None

    def sources_of(self, stretch: Stretch) -> frozenset[int] | None:
        """Gives what a stretch was computed from; None when that was never seen."""
        if self.labels is not None:
            label = self.labels.get(stretch)
            if label is not None:
                return label
        return self.sources

    def is_unwritten(self, stretch: Stretch) -> bool:
        """Tells whether the stretch holds memory that nobody has written."""
        return self.unwritten > 0 and (self.written is None or stretch not in self.written)

    def write(self, stretch: Stretch, nbytes: int) -> None:
        """Notes that an operator wrote a stretch."""
        self.changes += 1
        if self.unwritten > 0:
            self.unwritten -= nbytes
            if self.written is None:
                self.written = set()
            self.written.add(stretch)


class Storages:
    """The table of storages."""

    def __init__(self) -> None:
        self._known: dict[int, Storage] = {}
        self._sweep_at = _SWEEP_FROM

    def of(self, tensor: torch.Tensor) -> Storage:
        """Gives the storage of a plain tensor; a tensor that has none is known by its own identity."""
        try:
            owner: Any = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError, AttributeError):  # sparse, fake, nested, wrapped
            owner = tensor
        known = self._known.get(id(owner))
        if known is None or known.reference() is not owner:
            nbytes = 0 if owner is tensor else owner.nbytes()
            known = self._known[id(owner)] = Storage(weakref.ref(owner), nbytes)
            self._sweep()
        return known

    def __iter__(self) -> Any:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def clear(self) -> None:
        """Forgets everything."""
        self._known.clear()
        self._sweep_at = _SWEEP_FROM

    def _sweep(self) -> None:
        if len(self._known) < self._sweep_at:
            return
        gone = [key for key, storage in self._known.items() if storage.reference() is None]
        for key in gone:
            del self._known[key]
        self._sweep_at = max(_SWEEP_FROM, 2 * len(self._known))


def plain_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Gives the plain tensors that hold the values: of a DTensor the local one, of a wrapper the inner ones."""
    if type(tensor) in _PLAIN or not is_traceable_wrapper_subclass(tensor):
        return (tensor,)
    parts: list[torch.Tensor] = []
    for name in tensor.__tensor_flatten__()[0]:
        inner = getattr(tensor, name)
        if isinstance(inner, torch.Tensor):
            parts.extend(plain_parts(inner))
    return tuple(parts)


def stretch_of(tensor: torch.Tensor) -> Stretch:
    """Names the elements of a tensor and their order, whatever the shape: neighbouring dimensions are merged."""
    if tensor.layout is not torch.strided:
        return ()
    try:
        if tensor.is_contiguous():
            return (int(tensor.storage_offset()), tensor.numel())
        return _merged(int(tensor.storage_offset()), zip(tensor.shape, tensor.stride(), strict=True))
    except (RuntimeError, NotImplementedError):  # nested and wrapped tensors have no strides to speak of
        return ()


def elements_of(tensor: torch.Tensor) -> Stretch:
    """Names the elements of a tensor whatever their order: a transposed view holds the same as what it is a view of."""
    stretch = stretch_of(tensor)
    if len(stretch) <= 3:
        return stretch
    by_stride = sorted(zip(tensor.shape, tensor.stride(), strict=True), key=lambda dimension: -dimension[1])
    merged = _merged(int(tensor.storage_offset()), by_stride)
    return merged[:2] if len(merged) == 3 and merged[2] == 1 else merged


def _merged(offset: int, dimensions: Iterable[tuple[int, int]]) -> Stretch:
    merged = [offset]
    for size, stride in dimensions:
        if size == 1:
            continue
        if len(merged) > 1 and merged[-1] == size * stride:
            merged[-2:] = [merged[-2] * size, stride]
        else:
            merged += [size, stride]
    return tuple(merged)
