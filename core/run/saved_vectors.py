"""Finds the content sums of rows and columns that were saved beside the row statistics of a parameter's record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from msprobe.core.records import HAS, VECTORS
from msprobe.core.run import layout
from msprobe.core.run.batch import raw_bytes

if TYPE_CHECKING:
    from msprobe.core.run.segment_reader import SegmentReader

Vector = NDArray[np.uint64]

#: Of records with one content, so many of the first are looked at.
_TRIED = 4


class SavedVectors:
    """Row and column sums of one rank's records, read when asked for.

    A record of equal content and form may stand for another: tied parameters are measured once.
    """

    def __init__(self, records: Mapping[str, NDArray[Any]], segments: Sequence[SegmentReader]) -> None:
        self._records, self._segments = records, segments

    def find(self, index: int) -> tuple[Vector, Vector] | None:
        """Gives the sums of record row ``index``; None when they were not saved."""
        for row in self._alike.get(self._key(index), ()):
            found = self._read(row)
            if found is not None:
                return found
        return None

    def _key(self, index: int) -> tuple[int, int]:
        if "checksum" not in self._records or not self._records["has"][index] & HAS["checksums"]:
            return -1, -1
        return int(self._records["checksum"][index]), int(self._records["form"][index])

    @cached_property
    def _alike(self) -> dict[tuple[int, int], list[int]]:
        """The first rows of each content."""
        found: dict[tuple[int, int], list[int]] = defaultdict(list)
        if "checksum" in self._records:
            for row in np.flatnonzero(self._records["has"] & HAS["checksums"]).tolist():
                rows = found[self._key(row)]
                if len(rows) < _TRIED:
                    rows.append(row)
        return found

    def _read(self, row: int) -> tuple[Vector, Vector] | None:
        segment, seq = self._segments[int(self._records["segment"][row])], int(self._records["seq"][row])
        stored = [segment.stored(layout.ROWS_FOLDER, seq, f"{seq}.{name}") for name in VECTORS]
        found = [np.frombuffer(raw_bytes(tensor.data), np.uint64) for tensor in stored if tensor is not None]
        return (found[0], found[1]) if len(found) == len(VECTORS) else None
