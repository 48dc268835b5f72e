"""What is known about each storage: the sites it was computed from, whether it was written, when it last changed.

A storage is known by the address of its C++ object. A weak reference keeps that address from being used again, and
keeps no data alive. Views and the tensors that autograd saved share the storage, so what is known is found again in
backward.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

#: A stretch of a storage, the same for all views that hold the same elements in the same order.
Stretch = tuple[int, ...]

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_NOTHING: frozenset[int] = frozenset()
#: Storages that have gone are swept when the table has grown to twice what was alive, and never below this.
_SWEEP_FROM = 4096


class Storage:
    """One storage of one tensor or of many views."""

    __slots__ = ("changes", "labels", "nbytes", "records", "reference", "sources", "unwritten", "written")

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
        #: Records of its content: see ``dispatch.Contents``.
        self.records: dict[Any, Any] | None = None

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
        self._known: dict[Any, Storage] = {}
        self._sweep_at = _SWEEP_FROM

    def of(self, tensor: torch.Tensor) -> Storage:
        """Gives the storage of a plain tensor; a tensor that has none is known by its own identity."""
        try:
            untyped = tensor.untyped_storage()
            key: Any = untyped._cdata
        except (RuntimeError, NotImplementedError, AttributeError):
            return self._of_object(tensor)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Storage(StorageWeakRef(untyped), untyped.nbytes())
            self._sweep()
        return known

    def _of_object(self, tensor: torch.Tensor) -> Storage:
        key = ("object", id(tensor))
        known = self._known.get(key)
        if known is None or known.reference() is not tensor:
            known = self._known[key] = Storage(weakref.ref(tensor), 0)
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
        gone = [key for key, storage in self._known.items() if _has_gone(storage.reference)]
        for key in gone:
            del self._known[key]
        self._sweep_at = max(_SWEEP_FROM, 2 * len(self._known))


def _has_gone(reference: Any) -> bool:
    if isinstance(reference, StorageWeakRef):
        return bool(reference.expired())
    return reference() is None


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
        merged: list[int] = [int(tensor.storage_offset())]
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
            if size == 1:
                continue
            if len(merged) > 1 and merged[-1] == size * stride:
                merged[-2:] = [merged[-2] * size, stride]
            else:
                merged += [size, stride]
        return tuple(merged)
    except (RuntimeError, NotImplementedError):
        return ()
