"""Combine what was measured of disjoint parts into what holds of the whole, for many wholes at once.

The same mathematics as ``merge`` in ``core.statistics`` and ``core.sketches``, over columns of records: minimum of
minima, mean weighted with finite counts, second moments as in Chan, Golub, LeVeque (1979), norms as the root of the sum
of squares, sums of counts. Sketches and positional checksums add only where every part was keyed by its index in the
whole; content sums always add.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_COUNTS = ("nan", "pos_inf", "neg_inf", "zero")


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows of a table, sorted by the whole that they are parts of, and where each whole begins; none is empty."""

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, numbers: NDArray[np.int64], rows: NDArray[np.int64] | None = None) -> Groups:
        """Groups rows (by default 0, 1, 2, ...) by a number for each, dense from 0; rows of a whole keep their order.

        >>> groups = Groups.of(np.array([1, 0, 1]))
        >>> groups.rows.tolist(), groups.starts.tolist()
        ([1, 0, 2], [0, 1])
        """
        order = np.argsort(numbers, kind="stable").astype(np.int64)
        starts = np.flatnonzero(np.diff(numbers[order], prepend=-1)).astype(np.int64)
        return cls(order if rows is None else rows[order], starts)

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many parts each whole has."""
        return np.diff(self.starts, append=len(self.rows))

    def reduce(self, combine: np.ufunc, column: Array) -> Array:
        """Combines a column over the parts of each whole."""
        if not len(self):
            return column[:0]
        reduced: Array = combine.reduceat(column[self.rows], self.starts, axis=0)
        return reduced

    def spread(self, values: Array) -> Array:
        """Gives each part, in the order of ``rows``, its whole's value."""
        return np.repeat(values, self.sizes, axis=0)


def combine_statistics(columns: Mapping[str, Array], elements: NDArray[np.int64], groups: Groups) -> dict[str, Array]:
    """Gives the statistics columns of ``core.records`` for each whole.

    Args:
        columns: The statistics columns of the table that holds the parts.
        elements: How many (real) elements each row of that table has.
        groups: Which rows are parts of which whole.
    """
    counts = {name: groups.reduce(np.add, columns[name]).astype(np.int64) for name in _COUNTS}
    finite = elements - columns["nan"] - columns["pos_inf"] - columns["neg_inf"]
    total = groups.reduce(np.add, finite)
    held = finite > 0
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        share = finite[groups.rows] / groups.spread(np.maximum(total, 1))
        means = {
            name: _sum(np.where(held, columns[name], 0.0)[groups.rows] * share, groups) for name in ("mean", "mean_abs")
        }
        deviation = np.where(held, columns["mean"], 0.0)[groups.rows] - groups.spread(means["mean"])
        spread = np.where(held, columns["m2"], 0.0)[groups.rows] + np.where(
            held[groups.rows], deviation * deviation * finite[groups.rows], 0.0
        )
        found: dict[str, Array] = {
            "min": groups.reduce(np.fmin, columns["min"]),
            "max": groups.reduce(np.fmax, columns["max"]),
            **means,
            "m2": _sum(spread, groups),
            "norm": _root_of_squares(np.where(held, columns["norm"], 0.0), groups),
        }
    for column in found.values():
        column[total == 0] = np.nan
    return {**found, **counts}


def add_sketches(sketches: Array, groups: Groups) -> Array:
    """Gives the sketch of each whole; only for parts that were keyed by their index in the whole.

    Where opposite overflows meet it is +Inf, so that NaN keeps meaning that a part has no sketch.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        total = groups.reduce(np.add, sketches)
    total[np.isnan(total) & ~np.isnan(groups.reduce(np.maximum, np.abs(sketches)))] = np.inf
    return total


def add_checksums(sums: NDArray[np.uint64], groups: Groups) -> NDArray[np.uint64]:
    """Adds checksums modulo 2^64."""
    return groups.reduce(np.add, sums)


def _sum(terms: Array, groups: Groups) -> Array:
    """Sums terms that stand in the order of ``groups.rows``."""
    return np.add.reduceat(terms, groups.starts) if len(groups) else terms[:0]


def _root_of_squares(norms: Array, groups: Groups) -> Array:
    """Gives the root of the sum of squares, without overflow or underflow on the way."""
    peak = groups.reduce(np.maximum, norms)
    scale = np.where((peak > 0) & np.isfinite(peak), peak, 1.0)
    scaled = norms[groups.rows] / groups.spread(scale)
    return np.sqrt(_sum(scaled * scaled, groups)) * scale
