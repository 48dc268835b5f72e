"""Compare two tensors by the L2 norm of their difference, relative to the reference."""

from __future__ import annotations

import math

from msprobe.core.measures import MeasuredPair, OfPair


class L2Relative(OfPair):
    """0 for equal values; +Inf when only the reference is all zeros, or non-finite elements are unlike.

    NaN when no element is finite. This is the error that verdicts are given on.
    """

    name = "l2_relative"
    better = "lower"
    formula = "||c - r|| / ||r||"
    source = "Normwise relative error; Higham, Accuracy and Stability of Numerical Algorithms, section 1.2."

    def compare_pair(self, pair: MeasuredPair) -> float:
        """Gives the relative L2 error over the elements that are finite on both sides."""
        measures = pair.measures
        if measures.nonfinite_differs:
            return math.inf
        if not measures.finite:
            return math.nan
        if measures.l2_difference == 0:
            return 0.0
        return measures.l2_difference / measures.l2_reference if measures.l2_reference else math.inf
