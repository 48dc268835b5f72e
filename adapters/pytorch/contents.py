"""Knows what operators have written, so that one content is measured once and unwritten memory never.

Seen from here every change of a tensor is an operator. So a record may stand for a later one of the same elements as
long as no operator has written their storage since.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from msprobe.adapters.pytorch.storages import Storages, elements_of, plain_parts, stretch_of
from msprobe.core.records import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msprobe.adapters.pytorch.operators import Operator
    from msprobe.adapters.pytorch.storages import Storage

_PLAIN = (torch.Tensor, torch.nn.Parameter)
#: What depends on the shape, not only on the elements and their order.
_SHAPED = frozenset({"rows"})
#: What does not even depend on their order.
_UNORDERED = frozenset({"statistics"})
_RESIZING = ("aten.resize", "aten._resize", "inductor.resize")


class Content:
    """What a tensor holds at present: why it cannot be read, or which record of this step holds the same already."""

    __slots__ = ("_key", "_moment", "_shape", "_storage", "is_reshaped", "seq", "status")

    def __init__(self, status: Status | None = None) -> None:
        self.status = status
        self.seq: int | None = None
        #: The tensor has another shape than in that record.
        self.is_reshaped = False
        self._storage: Storage | None = None

    def find(self, storage: Storage, key: tuple[Any, ...], moment: tuple[int, int, int], shape: Any) -> None:
        """Looks the content up; ``moment`` changes whenever the storage is written, no shape is like no other."""
        self._storage, self._key, self._moment, self._shape = storage, key, moment, shape
        known = storage.records.get(key) if storage.records else None
        if known is not None and known[1] == moment:
            self.seq = known[0]
            self.is_reshaped = shape is None or known[2] != shape

    def keep(self, seq: int) -> None:
        """Remembers which record holds it."""
        if self._storage is None:
            return
        if self._storage.records is None:
            self._storage.records = {}
        self._storage.records[self._key] = (seq, self._moment, self._shape)


class Contents:
    """What is known of the storages that operators read and write."""

    def __init__(self) -> None:
        self._storages = Storages()
        self._step = 0

    def look(self, tensor: torch.Tensor, what: frozenset[str]) -> Content:
        """Tells what a tensor holds now, as far as ``what`` depends on it."""
        if type(tensor) in _PLAIN:
            return self._look(tensor, self._storages.of(tensor), what)
        if _is_pending(tensor):
            return Content(Status.UNSUPPORTED)
        parts = plain_parts(tensor)
        if len(parts) == 1:
            return self._look(parts[0], self._storages.of(parts[0]), what, is_wrapped=True)
        if any(_is_unwritten(part, self._storages.of(part)) for part in parts):
            return Content(Status.UNINITIALISED)
        return Content()

    def ran(
        self, operator: Operator, operands: Sequence[tuple[str, torch.Tensor]], outputs: Sequence[torch.Tensor]
    ) -> None:
        """Notes what an operator has written."""
        if operator.is_unwritten:
            for tensor in outputs:
                self._forget_writes(tensor)
        if operator.mutated:
            resizes = operator.name.startswith(_RESIZING)
            for name, tensor in operands:
                if name.partition(".")[0] in operator.mutated:
                    self._written(tensor, resizes=resizes)

    def new_step(self) -> None:
        """Forgets the records of the step."""
        self._step += 1

    def _look(self, part: torch.Tensor, storage: Storage, what: frozenset[str], *, is_wrapped: bool = False) -> Content:
        if storage.unwritten > 0 and _is_unwritten(part, storage):
            return Content(Status.UNINITIALISED)
        content = Content()
        if part.layout is torch.strided:
            shape = part.shape
            elements = elements_of(part) if what == _UNORDERED else stretch_of(part)
            flipped = (part.is_neg(), part.is_conj())
            key = (elements, part.dtype, what, flipped, shape if what & _SHAPED else None)
            version = 0 if part.is_inference() else part._version
            content.find(storage, key, (storage.changes, version, self._step), None if is_wrapped else shape)
        return content

    def _forget_writes(self, tensor: torch.Tensor) -> None:
        for part in plain_parts(tensor):
            storage = self._storages.of(part)
            storage.changes += 1
            storage.unwritten, storage.written = storage.nbytes, None

    def _written(self, tensor: torch.Tensor, *, resizes: bool) -> None:
        for part in plain_parts(tensor):
            storage = self._storages.of(part)
            if resizes:
                grown = part.untyped_storage().nbytes() - storage.nbytes
                storage.nbytes += grown
                storage.unwritten += max(grown, 0)
                storage.changes += 1
            else:
                storage.write(stretch_of(part), part.numel() * part.element_size())


def _is_unwritten(part: torch.Tensor, storage: Storage) -> bool:
    return storage.unwritten > 0 and part.numel() > 0 and storage.is_unwritten(stretch_of(part))


def _is_pending(tensor: torch.Tensor) -> bool:
    """Tells whether the tensor is the result of a collective that has not been waited for."""
    module = sys.modules.get("torch.distributed._functional_collectives")
    return module is not None and isinstance(tensor, module.AsyncCollectiveTensor)
