"""Compare two tensors by their largest absolute difference."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from msprobe.core.measures import pair_measures

if TYPE_CHECKING:
    from numpy.typing import NDArray


class MaxAbs:
    """0 for equal values; +Inf when non-finite elements are unlike; NaN when no element is finite."""

    name = "max_abs"
    better = "lower"
    formula = "max_i |c_i - r_i|"
    source = "The maximum norm; Golub and Van Loan, Matrix Computations, 4th ed., section 2.2."

    def compare(self, candidate: NDArray[Any], reference: NDArray[Any]) -> float:
        """Gives the largest absolute difference."""
        pair = pair_measures(candidate, reference)
        if pair.unlike:
            return math.inf
        return pair.max_abs if pair.finite else math.nan
