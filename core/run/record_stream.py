"""Reads a rank's records piece by piece, holding a few bytes for each batch and no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.errors import RunError
from msprobe.core.records import Column, filler, record_columns
from msprobe.core.run import layout
from msprobe.core.run.streams import decode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.run.streams import Values


@dataclass(frozen=True, slots=True)
class SegmentRecords:
    """The records file of one segment: the length of its header, and its sites' and forms' numbers in the rank."""

    path: Path
    what: frozenset[str]
    header: int
    site_numbers: NDArray[np.int64]
    form_numbers: NDArray[np.int64]

    def read(self, start: int, end: int) -> dict[str, NDArray[Any]]:
        """Gives the columns of the batches that lie between two positions of the file."""
        with self.path.open("rb") as file:
            data = file.read(self.header)
            file.seek(start)
            data += file.read(end - start)
        try:
            stored = decode(data, layout.record_fields(self.what))
        except ValueError as error:
            raise RunError(f"{self.path}: damaged ({error})") from error
        return translated(stored, record_columns(self.what), self.site_numbers, self.form_numbers)


@dataclass(frozen=True, slots=True)
class RecordStream:
    """The batches of a rank that count, in order.

    ``batches`` has a row for each: position in ``segments``, step, number of records, start and end in the file.
    """

    segments: tuple[SegmentRecords, ...]
    batches: NDArray[np.int64]

    def read(self, which: NDArray[np.bool_]) -> Iterator[dict[str, NDArray[Any]]]:
        """Gives the records of the batches that are marked, neighbours together; see ``RankRun.records``."""
        chosen = np.flatnonzero(which & (self.batches[:, 2] > 0))
        if not len(chosen):
            return
        segment, _, _, start, end = self.batches[chosen].T
        breaks = np.flatnonzero((np.diff(segment) != 0) | (start[1:] != end[:-1])) + 1
        for part in np.split(np.arange(len(chosen)), breaks):
            number = int(segment[part[0]])
            records = self.segments[number].read(int(start[part[0]]), int(end[part[-1]]))
            records["segment"] = np.full(len(records["seq"]), number, np.uint16)
            yield records


def translated(
    stored: Mapping[str, Values],
    columns: tuple[Column, ...],
    site_numbers: NDArray[np.int64],
    form_numbers: NDArray[np.int64],
) -> dict[str, NDArray[Any]]:
    """Fills columns that a segment lacks, and gives its sites and forms their numbers in the rank."""
    length = len(stored["seq"])
    records: dict[str, NDArray[Any]] = {}
    for column in columns:
        values = stored.get(column.name)
        if values is None:
            shape = (length, column.width) if column.width else (length,)
            values = np.full(shape, filler(column), column.dtype)
        records[column.name] = np.asarray(values)
    records["site"] = site_numbers[records["site"]].astype(np.uint32)
    records["form"] = form_numbers[records["form"]].astype(np.uint32)
    return records
