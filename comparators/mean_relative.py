"""Compare two tensors by the mean of their relative differences, element by element."""

from __future__ import annotations

import math

from msprobe.core.measures import MeasuredPair, OfPair, relative_differences


class MeanRelative(OfPair):
    """0 for equal values; +Inf when only the reference is 0 somewhere, or non-finite elements are unlike.

    NaN when no element is finite. Two zeros differ by 0.
    """

    name = "mean_relative"
    better = "lower"
    formula = "mean_i |c_i - r_i| / |r_i|"
    source = "Mean of the componentwise relative error; Higham, Accuracy and Stability, section 1.2."

    def compare_pair(self, pair: MeasuredPair) -> float:
        """Gives the mean relative difference over the elements that are finite on both sides."""
        sums = pair.sums
        if sums is not None and not sums.unlike:
            return sums.sum_relative / sums.finite if sums.finite else math.nan
        total, count = 0.0, 0
        for block in pair.blocks():
            if block.unlike:
                return math.inf
            total += float(relative_differences(block).sum())
            count += block.difference.size
        return total / count if count else math.nan
