"""The records of a step that are not yet written: compact rows until the reducer gives their numbers, then columns."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msprobe.core.records import HAS, RECORD_COLUMNS, Status, filler

Array = NDArray[Any]
Columns = dict[str, Array]

#: Records of earlier batches that are kept: a slow step is written in parts, and shares at its end what backward gave.
EARLIER = 32_768

#: What a row holds: where the record's numbers will be found is ``slot`` (see ``PendingRecords.add``).
_ROW = ("step", "micro_step", "site", "form", "status", "has", "tensor", "rows", "slot")
_WIDTH = len(_ROW)
_MEASURED_COLUMNS = tuple(c for c in RECORD_COLUMNS if c.wanted_by in ("statistics", "sketch", "checksums"))


class PendingRecords:
    """Rows of records in order of execution: adding one costs well under a microsecond.

    A record may share the numbers of an earlier one. Those of the last ``EARLIER`` records are kept for that.
    """

    def __init__(self) -> None:
        #: Number of the first record that is pending, and of the next one.
        self.first = 0
        self.next = 0
        self._rows: list[tuple[int, ...]] = []
        self._earlier: deque[tuple[int, Columns]] = deque()

    def __len__(self) -> int:
        return self.next - self.first

    def add(self, row: tuple[int, ...]) -> int:
        """Adds a row (step, micro_step, site, form, status, has, tensor, rows, slot) and gives its number.

        A slot from 0 on is one of the reducer's, -1 none, and -2 - i is that of record i of an earlier batch.
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
        else:
            found = next(((seq - first, c) for first, c in self._earlier if 0 <= seq - first < len(c["seq"])), None)
            if found is None:
                return None
            row, columns = found
            known = (*(int(columns[name][row]) for name in _ROW[3:-1]), -2 - seq)
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
        self._earlier.append((self.first, columns))
        while len(self._earlier) > 1 and self.next - self._earlier[0][0] > EARLIER:
            self._earlier.popleft()
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
            here = kept & (slots >= 0)
            if here.any():
                values[here] = measured[column.name][slots[here]]
            self._take_over(column.name, values, np.where(kept, -2 - slots, -1))
        return columns

    def _take_over(self, name: str, values: Array, seqs: Array) -> None:
        """Fills in what records of earlier batches have; ``seqs`` are their numbers, below 0 for none."""
        if not (seqs >= 0).any():
            return
        for first, columns in self._earlier:
            there = (seqs >= first) & (seqs < first + len(columns["seq"]))
            if there.any():
                values[there] = columns[name][seqs[there] - first]
