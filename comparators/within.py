"""Compare two tensors by the share of elements that agree to a relative tolerance."""

from __future__ import annotations

import math

import numpy as np

from msprobe.core.measures import TOLERANCES, MeasuredPair, OfPair


class Within(OfPair):
    """1 when all elements agree; NaN for empty tensors.

    A zero in the reference agrees only with zero. Non-finite elements agree when they are alike.
    """

    better = "higher"
    source = "Componentwise relative error; Higham, Accuracy and Stability of Numerical Algorithms, section 1.2."

    def __init__(self, name: str, tolerance: float) -> None:
        self.name = name
        self.tolerance = tolerance
        self.formula = f"share of i with |c_i - r_i| <= {tolerance:g} |r_i|"

    def compare_pair(self, pair: MeasuredPair) -> float:
        """Gives the share of elements that agree."""
        sums = pair.sums
        if sums is not None and self.tolerance in TOLERANCES and pair.candidate.size:
            agreeing = sums.alike + sums.within[TOLERANCES.index(self.tolerance)]
            return agreeing / (sums.finite + sums.alike + sums.unlike)
        agreeing = total = 0
        for block in pair.blocks():
            close = np.abs(block.difference) <= self.tolerance * np.abs(block.reference)
            agreeing += block.alike + int(np.count_nonzero(close | (block.difference == 0)))
            total += block.size
        return agreeing / total if total else math.nan


#: A thousandth: the usual double-thousandth check of accelerator vendors is of this kind.
WITHIN_1E_3 = Within("within_1e_3", 1e-3)
#: Five thousandths, a little more than the unit roundoff of bf16.
WITHIN_5E_3 = Within("within_5e_3", 5e-3)
