"""Knows what operators have written, so that one content is measured once and unwritten memory never.

Seen from here every change of a tensor is an operator. So a record may stand for a later one of the same elements in
the same order as long as no operator has written their storage since.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from msprobe.adapters.pytorch.storages import Storages, plain_parts, stretch_of
from msprobe.core.records import Status

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msprobe.adapters.pytorch.operators import Operator

#: What depends on the shape, not only on the elements and their order.
_SHAPED = frozenset({"rows", "tensors"})
_RESIZING = ("aten.resize", "aten._resize", "inductor.resize")


class Contents:
    """What is known of the storages that operators read and write."""

    def __init__(self) -> None:
        self._storages = Storages()
        self._step = 0

    def status(self, tensor: torch.Tensor) -> Status | None:
        """Gives why a tensor must not be measured now, or None when it may be."""
        if _is_pending(tensor):
            return Status.UNSUPPORTED
        for part in plain_parts(tensor):
            storage = self._storages.of(part)
            if storage.unwritten > 0 and part.numel() and storage.is_unwritten(stretch_of(part)):
                return Status.UNINITIALISED
        return None

    def find(self, tensor: torch.Tensor, what: frozenset[str]) -> int | None:
        """Gives the record of this step that holds the very same content, if there is one."""
        parts = plain_parts(tensor)
        if len(parts) != 1:
            return None
        records = self._storages.of(parts[0]).records
        found = records.get(_key(parts[0], what)) if records else None
        if found is None or found[1:] != self._version(parts[0]):
            return None
        return int(found[0])

    def keep(self, tensor: torch.Tensor, what: frozenset[str], seq: int) -> None:
        """Remembers the record of a tensor's present content."""
        parts = plain_parts(tensor)
        if len(parts) != 1 or parts[0].layout is not torch.strided:
            return
        storage = self._storages.of(parts[0])
        if storage.records is None:
            storage.records = {}
        storage.records[_key(parts[0], what)] = (seq, *self._version(parts[0]))

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

    def _version(self, part: torch.Tensor) -> tuple[int, int, int]:
        version = 0 if part.is_inference() else part._version
        return self._storages.of(part).changes, version, self._step

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


def _key(part: torch.Tensor, what: frozenset[str]) -> tuple[Any, ...]:
    shape = tuple(part.shape) if what & _SHAPED else None
    return stretch_of(part), part.dtype, what, shape, part.is_conj(), part.is_neg()


def _is_pending(tensor: torch.Tensor) -> bool:
    """Tells whether the tensor is the result of a collective that has not been waited for."""
    if type(tensor) is torch.Tensor:
        return False
    module = sys.modules.get("torch.distributed._functional_collectives")
    return module is not None and isinstance(tensor, module.AsyncCollectiveTensor)
