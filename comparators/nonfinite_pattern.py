"""Compare where two tensors hold NaN, +Inf and -Inf."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from msprobe.core.measures import pair_measures

if TYPE_CHECKING:
    from numpy.typing import NDArray


class NonfinitePattern:
    """0 when NaN, +Inf and -Inf stand in the same places, 1 when they do nowhere; NaN for empty tensors."""

    name = "nonfinite_pattern"
    better = "lower"
    formula = "share of elements that are NaN, +Inf, -Inf or finite on one side and not on the other"
    source = "IEEE 754-2019, section 7: what arises from invalid operations and overflow."

    def compare(self, candidate: NDArray[Any], reference: NDArray[Any]) -> float:
        """Gives the share of elements whose kind differs."""
        pair = pair_measures(candidate, reference)
        return pair.unlike / pair.elements if pair.elements else math.nan
