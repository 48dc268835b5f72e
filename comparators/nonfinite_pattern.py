"""Compare where two tensors hold NaN, +Inf and -Inf."""

from __future__ import annotations

import math

from msprobe.core.measures import MeasuredPair, OfPair


class NonfinitePattern(OfPair):
    """0 when NaN, +Inf and -Inf stand in the same places, 1 when they do nowhere; NaN for empty tensors."""

    name = "nonfinite_pattern"
    better = "lower"
    formula = "share of elements that are NaN, +Inf, -Inf or finite on one side and not on the other"
    source = "IEEE 754-2019, section 7: what arises from invalid operations and overflow."

    def compare_pair(self, pair: MeasuredPair) -> float:
        """Gives the share of elements whose kind differs."""
        measures = pair.measures
        return measures.unlike / measures.elements if measures.elements else math.nan
