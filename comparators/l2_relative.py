"""Compare two tensors by the L2 norm of their difference, relative to the reference."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from msprobe.core.measures import pair_measures

if TYPE_CHECKING:
    from numpy.typing import NDArray


class L2Relative:
    """0 for equal values; +Inf when only the reference is all zeros, or non-finite elements are unlike.

    NaN when no element is finite. This is the error that verdicts are given on.
    """

    name = "l2_relative"
    better = "lower"
    formula = "||c - r|| / ||r||"
    source = "Normwise relative error; Higham, Accuracy and Stability of Numerical Algorithms, section 1.2."

    def compare(self, candidate: NDArray[Any], reference: NDArray[Any]) -> float:
        """Gives the relative L2 error over the elements that are finite on both sides."""
        pair = pair_measures(candidate, reference)
        if pair.nonfinite_differs:
            return math.inf
        if not pair.finite:
            return math.nan
        if pair.l2_difference == 0:
            return 0.0
        return pair.l2_difference / pair.l2_reference if pair.l2_reference else math.inf
