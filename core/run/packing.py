"""How records lie on disk: in few bytes, and losslessly.

Many records of a batch have the same numbers (what one module gives, the next one takes), and few have NaN, Inf or
zeros. So each distinct set of numbers stands once, in the table ``values``, and what is mostly zero stands in tables of
its own, with the rows that it belongs to. Numbers of records are consecutive; the commit tells the first of a batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msprobe.core.records import Column, filler, record_columns
from msprobe.core.run.streams import Field, Values

Array = NDArray[Any]
Table = tuple[dict[str, Values], int]

RECORDS, VALUES, COUNTS, CHECKSUMS = "records", "values", "counts", "checksums"
#: The tables in the order in which they are written.
TABLES = (VALUES, COUNTS, CHECKSUMS, RECORDS)

_NARROW = {"step": "int32"}
_REFERENCES = {"tensor": "tensors", "rows": "rows"}
_MIX, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(29)


class Packing:
    """The tables of a segment that keeps ``what``."""

    def __init__(self, what: frozenset[str]) -> None:
        self._columns = record_columns(what)
        numbers = [c for c in self._columns if c.wanted_by in ("statistics", "sketch", "checksums")]
        self._parts: dict[str, list[Column]] = {
            VALUES: [c for c in numbers if c.dtype == "float64"],
            COUNTS: [c for c in numbers if c.dtype == "int64"],
            CHECKSUMS: [c for c in numbers if c.dtype == "uint64"],
        }
        self._numbers = [column for part in self._parts.values() for column in part]
        self._direct = [c for c in self._columns if c.name != "seq" and c not in numbers and _is_kept(c, what)]
        row = Field("values", "uint32")
        direct = [Field(c.name, _dtype_on_disk(c)) for c in self._direct]
        self.fields: dict[str, tuple[Field, ...]] = {RECORDS: (*direct, *([row] if self._numbers else ()))}
        for name, columns in self._parts.items():
            rare = name != VALUES and bool(columns)
            self.fields[name] = (*([row] if rare else ()), *(Field(c.name, c.dtype, c.width) for c in columns))

    def pack(self, records: Mapping[str, Array], length: int, first_row: int) -> tuple[dict[str, Table], int]:
        """Gives the tables of a batch of records, and how many rows of values it has.

        Args:
            records: Columns of ``core.records``; a column that is missing is filled.
            length: How many records there are.
            first_row: How many rows of values the segment has already.

        Raises:
            OverflowError: A number has no room in its column.
        """
        direct: dict[str, Values] = {
            column.name: _narrowed(_filled(column, records, length), _dtype_on_disk(column)) for column in self._direct
        }
        if not self._numbers or not length:
            none: dict[str, Table] = {name: ({}, 0) for name in self._parts}
            return none | {RECORDS: (direct, length)}, 0
        full = {c.name: np.ascontiguousarray(_filled(c, records, length), c.dtype) for c in self._numbers}
        rows, places = distinct(np.concatenate([_words(values, length) for values in full.values()], axis=1))
        direct["values"] = _narrowed(places + first_row, "uint32")
        tables: dict[str, Table] = {RECORDS: (direct, length)}
        for name, part in self._parts.items():
            columns: dict[str, Values] = {c.name: full[c.name][rows] for c in part}
            tables[name] = (columns, len(rows) if columns else 0) if name == VALUES else _rare(columns, first_row)
        return tables, len(rows)

    def unpack(self, tables: Mapping[str, Mapping[str, Values]], seq: Array, first_row: int) -> dict[str, Values]:
        """Gives the columns of ``core.records`` for what ``pack`` made of consecutive batches.

        Args:
            tables: The decoded tables.
            seq: The numbers of the records.
            first_row: Number of the first row of values among them.
        """
        records = {name: np.asarray(values) for name, values in tables[RECORDS].items()}
        columns = {c.name: records[c.name].astype(c.dtype, copy=False) for c in self._direct}
        columns["seq"] = seq.astype(np.uint64)
        if self._numbers:
            places = records["values"].astype(np.int64) - first_row
            count = int(places.max(initial=-1)) + 1
            for name, part in self._parts.items():
                for column in part:
                    values = np.asarray(tables[name][column.name])
                    if name != VALUES:
                        values = _spread(values, np.asarray(tables[name]["values"], np.int64) - first_row, count)
                    columns[column.name] = values[places]
        return {c.name: columns[c.name] for c in self._columns if c.name in columns}


def distinct(words: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Gives the first of each set of equal rows, in order, and for each row the place of its equal among them."""
    mixed = np.zeros(len(words), np.uint64)
    for column in words.T:
        mixed = (mixed ^ column) * _MIX
        mixed ^= mixed >> _SHIFT
    _, first, inverse = np.unique(mixed, return_index=True, return_inverse=True)
    if not np.array_equal(words[first][inverse], words):  # two rows were mixed into the same word
        _, first, inverse = np.unique(words, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return first[order], place[inverse.reshape(-1)]


def _is_kept(column: Column, what: frozenset[str]) -> bool:
    return column.name not in _REFERENCES or _REFERENCES[column.name] in what


def _dtype_on_disk(column: Column) -> str:
    return _NARROW.get(column.name, column.dtype)


def _filled(column: Column, records: Mapping[str, Array], length: int) -> Array:
    values = records.get(column.name)
    if values is not None:
        return np.asarray(values)
    return np.full((length, column.width) if column.width else (length,), filler(column), column.dtype)


def _words(values: Array, length: int) -> NDArray[np.uint64]:
    return values.reshape(length, -1).view(np.uint64)


def _rare(columns: dict[str, Values], first_row: int) -> Table:
    """Gives the rows that are not all zero, with their numbers."""
    if not columns:
        return {}, 0
    rows = np.flatnonzero(np.any([np.asarray(values) != 0 for values in columns.values()], axis=0))
    numbers: dict[str, Values] = {"values": _narrowed(rows + first_row, "uint32")}
    return numbers | {name: np.asarray(values)[rows] for name, values in columns.items()}, len(rows)


def _spread(values: Array, rows: NDArray[np.int64], count: int) -> Array:
    full = np.zeros(count, values.dtype)
    full[rows] = values
    return full


def _narrowed(values: Array, dtype: str) -> Array:
    narrow = values.astype(dtype)
    if narrow.dtype != values.dtype and not np.array_equal(narrow, values):
        raise OverflowError(f"numbers up to {values.max()} do not fit into {dtype}")
    return narrow
