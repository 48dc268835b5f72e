"""Reads a rank's records piece by piece, holding a few bytes for each batch and no more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.errors import RunError
from msprobe.core.records import Column, filler, record_columns
from msprobe.core.run import layout
from msprobe.core.run.packing import RECORDS, TABLES, Packing
from msprobe.core.run.streams import Encoder, Field, Values, decode

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: How wide the place of a batch is: how many records, the numbers of the first one and of the first row of values,
#: and where its part of each table starts and ends.
PLACE_WIDTH = 3 + 2 * len(TABLES)


@dataclass(frozen=True, slots=True)
class StoredRecords:
    """The records of one segment as they lie in its files; ``headers`` are the lengths of their headers."""

    folder: Path
    segment: int
    what: frozenset[str]
    headers: Mapping[str, int]

    def read(self, places: NDArray[np.int64]) -> dict[str, Values]:
        """Gives the columns of ``core.records`` for batches that lie one after the other.

        Raises:
            RunError: The files are damaged, or do not fit each other.
        """
        packing = Packing(self.what)
        tables = {
            name: self._decoded(name, packing.fields[name], places[:, 3 + 2 * i : 5 + 2 * i])
            for i, name in enumerate(TABLES)
        }
        seq = np.concatenate([np.empty(0, np.int64), *(np.arange(first, first + n) for n, first in places[:, :2])])
        try:
            return packing.unpack(tables, seq, int(places[0, 2]) if len(places) else 0)
        except (ValueError, IndexError) as error:
            path = layout.segment_path(self.folder, RECORDS, self.segment)
            raise RunError(f"{path}: does not fit the other files of its segment; copy the run again") from error

    def _decoded(self, table: str, fields: Sequence[Field], spans: NDArray[np.int64]) -> dict[str, Values]:
        if not len(spans):
            return decode(Encoder(fields).header, fields)
        start, end = int(spans[0, 0]), int(spans[-1, 1])
        path = layout.segment_path(self.folder, table, self.segment)
        with path.open("rb") as file:
            data = file.read(self.headers[table])
            file.seek(start)
            data += file.read(end - start)
        try:
            return decode(data, fields)
        except ValueError as error:
            raise RunError(f"{path}: damaged ({error})") from error


@dataclass(frozen=True, slots=True)
class SegmentRecords:
    """The records of one segment, and its sites' and forms' numbers in the rank."""

    stored: StoredRecords
    site_numbers: NDArray[np.int64]
    form_numbers: NDArray[np.int64]

    def read(self, places: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Gives the columns of batches that lie one after the other."""
        columns = record_columns(self.stored.what)
        return translated(self.stored.read(places), columns, self.site_numbers, self.form_numbers)


@dataclass(frozen=True, slots=True)
class RecordStream:
    """The batches of a rank that count, in order.

    ``batches`` has a row for each: position in ``segments``, step, number of records, and the rest of its place.
    """

    segments: tuple[SegmentRecords, ...]
    batches: NDArray[np.int64]

    def read(self, which: NDArray[np.bool_]) -> Iterator[dict[str, NDArray[Any]]]:
        """Gives the records of the batches that are marked, neighbours together; see ``RankRun.records``."""
        chosen = np.flatnonzero(which & (self.batches[:, 2] > 0))
        if not len(chosen):
            return
        segment, places = self.batches[chosen, 0], self.batches[chosen, 2:]
        start, end = places[:, -2], places[:, -1]
        breaks = np.flatnonzero((np.diff(segment) != 0) | (start[1:] != end[:-1])) + 1
        for part in np.split(np.arange(len(chosen)), breaks):
            number = int(segment[part[0]])
            records = self.segments[number].read(places[part])
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
