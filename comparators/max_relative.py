"""Compare two tensors by their largest relative difference, element by element."""

from __future__ import annotations

import math

import numpy as np

from msprobe.core.measures import MeasuredPair, OfPair, relative_differences


class MaxRelative(OfPair):
    """0 for equal values; +Inf when only the reference is 0 somewhere, or non-finite elements are unlike.

    NaN when no element is finite. Two zeros differ by 0.
    """

    name = "max_relative"
    better = "lower"
    formula = "max_i |c_i - r_i| / |r_i|"
    source = "Componentwise relative error; Higham, Accuracy and Stability of Numerical Algorithms, section 1.2."

    def compare_pair(self, pair: MeasuredPair) -> float:
        """Gives the largest relative difference."""
        sums = pair.sums
        if sums is not None and not sums.unlike:
            return sums.max_relative if sums.finite else math.nan
        largest = math.nan
        for block in pair.blocks():
            if block.unlike:
                return math.inf
            if block.difference.size:
                largest = float(np.fmax(largest, relative_differences(block).max()))
        return largest
