"""Compare two tensors by their signs: an optimizer that uses only the sign cares for nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class SignFlips:
    """0 when every element has the same sign on both sides, 1 when none has."""

    name = "sign_flips"
    better = "lower"
    formula = "mean(sign(candidate) != sign(reference))"
    source = "Bernstein et al., signSGD, ICML 2018, section 3"

    def compare(self, candidate: NDArray[Any], reference: NDArray[Any]) -> float:
        """Gives the share of elements whose sign differs; NaN for empty tensors."""
        if candidate.size == 0:
            return float("nan")
        return float(np.mean(np.sign(candidate) != np.sign(reference)))
