"""Compare two tensors by their largest absolute difference."""

from __future__ import annotations

import math

from msprobe.core.measures import MeasuredPair, OfPair


class MaxAbs(OfPair):
    """0 for equal values; +Inf when non-finite elements are unlike; NaN when no element is finite."""

    name = "max_abs"
    better = "lower"
    formula = "max_i |c_i - r_i|"
    source = "The maximum norm; Golub and Van Loan, Matrix Computations, 4th ed., section 2.2."

    def compare_pair(self, pair: MeasuredPair) -> float:
        """Gives the largest absolute difference."""
        measures = pair.measures
        if measures.unlike:
            return math.inf
        return measures.max_abs if measures.finite else math.nan
