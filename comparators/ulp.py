"""Compare two tensors by their difference in units in the last place, the largest or the mean.

The unit is the spacing of numbers at the reference's element, in the coarser of the two formats: comparing bf16 with
fp32, a bf16 result that is rounded correctly is at most half a unit away.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.measures import MeasuredPair, OfPair
from msprobe.core.spacing import coarser_precision, spacing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

_SOURCE = "Muller, On the definition of ulp(x), INRIA RR-5504, 2005 (Goldberg's definition)."


class Ulp(OfPair):
    """0 for equal values, 1 for neighbours; integers differ in units of 1.

    +Inf when non-finite elements are unlike, NaN when no element is finite.
    """

    name = "ulp"
    better = "lower"
    formula = "max_i |c_i - r_i| / ulp(r_i)"
    source = _SOURCE

    def compare_pair(self, pair: MeasuredPair) -> float:
        """Gives the largest distance."""
        if pair.measures.unlike:
            return math.inf
        precision, sums = coarser_precision(pair.formats), pair.sums
        if precision is not None and sums is not None:
            return sums.max_distance * 2.0 ** (precision[0] - 1) if sums.finite else math.nan
        largest = math.nan
        for distances in _distances(pair):
            largest = float(np.fmax(largest, distances.max()))
        return largest


class UlpMean(OfPair):
    """0 for equal values; integers differ in units of 1.

    +Inf when non-finite elements are unlike, NaN when no element is finite.
    """

    name = "ulp_mean"
    better = "lower"
    formula = "mean_i |c_i - r_i| / ulp(r_i)"
    source = _SOURCE

    def compare_pair(self, pair: MeasuredPair) -> float:
        """Gives the mean distance over the elements that are finite on both sides."""
        if pair.measures.unlike:
            return math.inf
        precision, sums = coarser_precision(pair.formats), pair.sums
        if precision is not None and sums is not None:
            return sums.sum_distance * 2.0 ** (precision[0] - 1) / sums.finite if sums.finite else math.nan
        total = sum(float(distances.sum()) for distances in _distances(pair))
        return total / pair.measures.finite if pair.measures.finite else math.nan


def _distances(pair: MeasuredPair) -> Iterator[NDArray[np.float64]]:
    """Gives the distance of each element that is finite on both sides, in blocks that are not empty."""
    for block in pair.blocks():
        if block.difference.size:
            with np.errstate(over="ignore"):
                yield np.abs(block.difference) / spacing(block.reference, pair.formats)
