"""Measures from saved tensors and statistics, pair by pair, for the verdict and for the comparators' columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.measures import MeasuredPair, PairMeasures, pair_measures
from msprobe.core.verdicts.table import PairTable, usable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.matching.views import RankView

#: Row sums and column sums of one side (``core.content_vectors``).
Vectors = tuple["NDArray[np.uint64]", "NDArray[np.uint64]"]
Progress = Callable[[Iterable[int]], Iterable[int]]


class TensorReader:
    """Reads the saved tensors of both sides of a row."""

    def __init__(self, table: PairTable) -> None:
        self._table = table
        self._runs: dict[int, tuple[RankView, RankView]] = {m.rank: (m.candidate, m.reference) for m in table.matches}

    def read(self, row: int) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Gives the values of both sides, or None where one was not saved."""
        candidate, reference = self._runs[int(self._table.rank[row])]
        x = candidate.tensor(int(self._table.candidate.row[row]))
        y = reference.tensor(int(self._table.reference.row[row]))
        return None if x is None or y is None else (x, y)

    def content_vectors(self, row: int) -> tuple[Vectors, Vectors] | None:
        """Gives row and column sums of both sides' content, or None where a side has none."""
        candidate, reference = self._runs[int(self._table.rank[row])]
        x = candidate.content_vectors(int(self._table.candidate.row[row]))
        y = reference.content_vectors(int(self._table.reference.row[row]))
        return None if x is None or y is None else (x, y)

    def measure(self, row: int) -> PairMeasures | None:
        """Measures the difference of a row's saved tensors; None where one was not saved."""
        pair = self.read(row)
        return None if pair is None else pair_measures(*pair)


@dataclass
class ComparatorColumns:
    """One column for each comparator that had something to work on, NaN where it had not; and what went wrong."""

    columns: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def fill(self, comparator: Any, rows: Any, measure: Callable[[], Any]) -> None:
        """Lets a comparator measure some rows; the first failure is kept, and does not end the comparison."""
        try:
            self.columns[comparator.name][rows] = measure()
        except Exception as error:  # noqa: BLE001 -- a comparator may be another package's
            self.failures.setdefault(comparator.name, f"{type(error).__name__}: {error}")


def compare_columns(table: PairTable, comparators: Sequence[Any], progress: Progress) -> ComparatorColumns:
    """Runs the comparators: of statistics on all pairs at once, of tensors on those whose values were saved."""
    both = usable(table.candidate) & usable(table.reference) & (table.candidate.shape == table.reference.shape)
    rows = np.flatnonzero(both & (table.candidate.tensor >= 0) & (table.reference.tensor >= 0))
    of_statistics = [c for c in comparators if hasattr(c, "compare_statistics")]
    of_tensors = [c for c in comparators if hasattr(c, "compare")] if len(rows) else []
    found = ComparatorColumns({c.name: np.full(len(table), np.nan) for c in (*of_statistics, *of_tensors)})
    for comparator in of_statistics:
        sides = [_statistics(side, both) for side in (table.candidate, table.reference)]
        found.fill(comparator, both, partial(comparator.compare_statistics, *sides))
    reader = TensorReader(table)
    for row in progress(rows.tolist() if of_tensors else []):
        pair = reader.read(row)
        if pair is None:
            continue
        formats = (str(table.candidate.dtype[row]), str(table.reference.dtype[row]))
        measured = MeasuredPair(*pair, formats)
        for comparator in of_tensors:
            if hasattr(comparator, "compare_pair"):
                found.fill(comparator, row, partial(comparator.compare_pair, measured))
            else:
                found.fill(comparator, row, partial(comparator.compare, *pair))
    return found


def _statistics(side: Any, rows: NDArray[np.bool_]) -> dict[str, NDArray[Any]]:
    found = {name: column[rows] for name, column in side.statistics.items()}
    found["elements"] = side.elements[rows]
    found["checksum"] = side.checksum[rows]
    found["has_checksum"] = side.has_checksum[rows]
    return found
