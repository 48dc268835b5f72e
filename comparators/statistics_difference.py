"""Compare recorded statistics, for runs without tensors.

They cannot see a permutation, and agreement of all of them proves nothing; each disagreement is real. Where the counts
of NaN, +Inf or -Inf differ every one of them is +Inf; NaN where a side was not measured or has no finite element.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = Mapping[str, NDArray[Any]]
Doubles = NDArray[np.float64]

_COUNTS = ("nan", "pos_inf", "neg_inf")


class NormRelative:
    """0 for equal norms; +Inf when only the reference's norm is 0."""

    name = "norm_relative"
    better = "lower"
    formula = "| ||c|| - ||r|| | / ||r||"
    source = "A lower bound of the relative L2 error, by the triangle inequality."

    def compare_statistics(self, candidate: Columns, reference: Columns) -> Doubles:
        """Gives the relative difference of the norms of each pair."""
        difference = _difference("norm", candidate, reference)
        norm = np.asarray(reference["norm"], np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            relative: Doubles = np.where(difference == 0, 0.0, difference / norm)
        return _with_counts(relative, candidate, reference)


class StatisticDifference:
    """The absolute difference of one statistic, in the tensor's own unit."""

    better = "lower"
    source = "A difference of recorded columns; see core.records."

    def __init__(self, statistic: str) -> None:
        self.statistic = statistic
        self.name = f"{statistic}_difference"
        self.formula = f"|{statistic}(c) - {statistic}(r)|"

    def compare_statistics(self, candidate: Columns, reference: Columns) -> Doubles:
        """Gives the absolute difference of each pair."""
        return _with_counts(_difference(self.statistic, candidate, reference), candidate, reference)


MEAN_DIFFERENCE = StatisticDifference("mean")
MAX_DIFFERENCE = StatisticDifference("max")
MIN_DIFFERENCE = StatisticDifference("min")


def _difference(name: str, candidate: Columns, reference: Columns) -> Doubles:
    x, y = np.asarray(candidate[name], np.float64), np.asarray(reference[name], np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        difference: Doubles = np.where(x == y, 0.0, np.abs(x - y))
    return difference


def _with_counts(measured: Doubles, candidate: Columns, reference: Columns) -> Doubles:
    """Puts +Inf where both sides were measured and counts of non-finite elements differ."""
    differ = np.zeros(measured.shape, bool)
    for name in _COUNTS:
        x, y = np.asarray(candidate[name], np.float64), np.asarray(reference[name], np.float64)
        differ |= (x >= 0) & (y >= 0) & (x != y)
    return np.where(differ, np.inf, measured)
