"""Reads a comparison that ``Comparison.save`` wrote: ``summary.json`` and ``pairs.parquet`` of one folder."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from msprobe.core.comparison import (
    PAIR_COLUMNS,
    SCHEMA_VERSION,
    Comparison,
    ContextDifference,
    Coverage,
    Finding,
    RunIdentity,
    Source,
    Summary,
)
from msprobe.core.errors import ComparisonError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NAMED = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_NUMBERS = frozenset({"error", "error_eps", "bound"})

_T = TypeVar("_T")


def is_comparison(folder: Path) -> bool:
    """Tells whether a folder holds a saved comparison."""
    return (folder / "summary.json").is_file() and (folder / "pairs.parquet").is_file()


def read_comparison(folder: Path) -> Comparison:
    """Reads a saved comparison.

    Raises:
        ComparisonError: A file is missing, damaged, or of a newer msprobe.
    """
    summary, pairs = folder / "summary.json", folder / "pairs.parquet"
    for file in (summary, pairs):
        if not file.is_file():
            raise ComparisonError(f"{folder}: not a saved comparison (it has no {file.name}).")
    try:
        document = json.loads(summary.read_text(encoding="utf-8"))
        version = document["schema_version"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ComparisonError(f"{summary}: cannot be read: {error}") from error
    if version > SCHEMA_VERSION:
        raise ComparisonError(
            f"{summary}: written by a newer msprobe (schema {version}); this one reads {SCHEMA_VERSION}."
        )
    try:
        columns = _read_pairs(pairs)
        return Comparison(_summary(document), columns, tuple(name for name in columns if name not in PAIR_COLUMNS))
    except (KeyError, TypeError, ValueError) as error:
        raise ComparisonError(f"{folder}: damaged: {error}") from error


def _summary(document: dict[str, Any]) -> Summary:
    return Summary(
        verdict=document["verdict"],
        sentence=document["sentence"],
        exit_code=document["exit_code"],
        coverage=_made(Coverage, document["coverage"]),
        sources=tuple(_made(Source, item) for item in document["sources"]),
        findings=tuple(_made(Finding, item) for item in document["findings"]),
        counts=document["counts"],
        context=tuple(_made(ContextDifference, item) for item in document["context"]),
        constants=document["constants"],
        candidate=_made(RunIdentity, document["candidate"]),
        reference=_made(RunIdentity, document["reference"]),
    )


def _made(kind: type[_T], values: dict[str, Any]) -> _T:
    """Makes a frozen dataclass from JSON: lists are tuples again, and numbers that JSON cannot hold numbers."""
    known = {f.name for f in fields(kind)}  # type: ignore[arg-type]
    made = {}
    for name, value in values.items():
        if name in known:
            number = _NAMED.get(value) if name in _NUMBERS and isinstance(value, str) else None
            made[name] = number if number is not None else tuple(value) if isinstance(value, list) else value
    return kind(**made)


def _read_pairs(file: Path) -> dict[str, NDArray[Any]]:
    import duckdb

    connection = duckdb.connect()
    try:
        found = connection.execute("SELECT * FROM read_parquet(?)", [str(file)]).fetchnumpy()
    except duckdb.Error as error:
        raise ComparisonError(f"{file}: cannot be read: {error}") from error
    finally:
        connection.close()
    missing = [name for name in PAIR_COLUMNS if name not in found]
    if missing:
        raise ComparisonError(f"{file}: lacks the column {missing[0]!r}; compare the runs again.")
    return {name: _plain(column) for name, column in found.items()}


def _plain(column: Any) -> NDArray[Any]:
    """Gives a column as NumPy has it elsewhere: texts as objects, nothing masked."""
    if isinstance(column, np.ma.MaskedArray):
        column = column.filled(np.nan if column.dtype.kind == "f" else "" if column.dtype.kind == "O" else 0)
    return np.asarray(column)
