"""The records of a step that are not yet written: compact rows until the reducer gives their numbers, then columns."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msprobe.core.records import HAS, RECORD_COLUMNS, Status, filler

Array = NDArray[Any]
Columns = dict[str, Array]

#: What a row holds: where the record's numbers will be found is ``slot`` (see ``PendingRecords.add``).
_ROW = ("step", "micro_step", "site", "form", "status", "has", "tensor", "rows", "slot")
_WIDTH = len(_ROW)
_MEASURED_COLUMNS = tuple(c for c in RECORD_COLUMNS if c.wanted_by in ("statistics", "sketch", "checksums"))


class PendingRecords:
    """Rows of records in order of execution: adding one costs well under a microsecond.

    A record may share the numbers of an earlier one. Those of the batch before are kept for that.
    """

    def __init__(self) -> None:
        #: Number of the first record that is pending, and of the next one.
        self.first = 0
        self.next = 0
        self._rows: list[tuple[int, ...]] = []
        self._earlier: Columns = {}
        self._earlier_first = 0

    def __len__(self) -> int:
        return self.next - self.first

    def add(self, row: tuple[int, ...]) -> int:
        """Adds a row (step, micro_step, site, form, status, has, tensor, rows, slot) and gives its number.

        A slot from 0 on is one of the reducer's, -1 none, and -2 - i is row i of the batch before.
        """
        self._rows.append(row)
        self.next += 1
        return self.next - 1

    def shared(self, seq: int, wanted: int) -> tuple[int, ...] | None:
        """Gives form, status, has, tensor, rows and slot of an earlier record.

        None when it is no longer here, or when it was measured but holds less than ``wanted`` (bits as in ``has``).
        """
        known: tuple[int, ...]
        if self.first <= seq < self.next:
            known = self._rows[seq - self.first][3:]
        elif self._earlier and self._earlier_first <= seq < self.first:
            row = seq - self._earlier_first
            known = (*(int(self._earlier[name][row]) for name in _ROW[3:-1]), -2 - row)
        else:
            return None
        _, status, has, *_ = known
        return known if has & wanted == wanted or status != Status.MEASURED else None

    def take(self, measured: Mapping[str, Array] | None) -> Columns:
        """Gives the pending records as columns and starts anew; ``measured`` None: measuring failed for all."""
        count = len(self._rows) * _WIDTH
        rows = np.fromiter(chain.from_iterable(self._rows), np.int64, count).reshape(-1, _WIDTH)
        taken = dict(zip(_ROW, rows.T, strict=True))
        slots = taken.pop("slot")
        if measured is None:
            lost = (slots >= 0) | (taken["tensor"] >= self.first) | (taken["rows"] >= self.first)
            absent = {"status": Status.FAILED, "has": 0, "tensor": -1, "rows": -1}
            taken |= {name: np.where(lost, value, taken[name]) for name, value in absent.items()}
        columns: Columns = {"seq": np.arange(self.first, self.next, dtype=np.uint64)}
        dtypes = {column.name: column.dtype for column in RECORD_COLUMNS}
        columns |= {name: values.astype(dtypes[name]) for name, values in taken.items()}
        columns |= self._numbers(slots, columns["has"], measured or {})
        self._earlier, self._earlier_first = columns, self.first
        self._rows = []
        self.first = self.next
        return columns

    def _numbers(self, slots: Array, has: Array, measured: Mapping[str, Array]) -> Columns:
        columns: Columns = {}
        for column in _MEASURED_COLUMNS:
            kept = (has & HAS[column.wanted_by]) != 0
            if not kept.any():
                continue
            shape = (len(slots), column.width) if column.width else (len(slots),)
            values = columns[column.name] = np.full(shape, filler(column), column.dtype)
            here, before = kept & (slots >= 0), kept & (slots <= -2)
            if here.any():
                values[here] = measured[column.name][slots[here]]
            if before.any():
                values[before] = self._earlier[column.name][-2 - slots[before]]
        return columns
