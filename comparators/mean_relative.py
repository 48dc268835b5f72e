"""Compare two tensors by the mean of their relative differences, element by element."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from msprobe.core.measures import pair_blocks, pair_sums, relative_differences

if TYPE_CHECKING:
    from numpy.typing import NDArray


class MeanRelative:
    """0 for equal values; +Inf when only the reference is 0 somewhere, or non-finite elements are unlike.

    NaN when no element is finite. Two zeros differ by 0.
    """

    name = "mean_relative"
    better = "lower"
    formula = "mean_i |c_i - r_i| / |r_i|"
    source = "Mean of the componentwise relative error; Higham, Accuracy and Stability, section 1.2."

    def compare(self, candidate: NDArray[Any], reference: NDArray[Any]) -> float:
        """Gives the mean relative difference over the elements that are finite on both sides."""
        sums = pair_sums(candidate, reference)
        if sums is not None and not sums.unlike:
            return sums.sum_relative / sums.finite if sums.finite else math.nan
        total, count = 0.0, 0
        for block in pair_blocks(candidate, reference):
            if block.unlike:
                return math.inf
            total += float(relative_differences(block).sum())
            count += block.difference.size
        return total / count if count else math.nan
