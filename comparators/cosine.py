"""Compare two tensors by the angle between them.

Flattened and in float64: in half precision the dot product of a long vector overflows. Each block is scaled by its
largest element, so that no square overflows or vanishes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.measures import MeasuredPair, OfPair

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Cosine(OfPair):
    """1 for the same direction, 0 for unrelated, -1 for opposite; blind to a common factor.

    NaN when a side is all zeros, when no element is finite, and when non-finite elements are unlike.
    """

    name = "cosine"
    better = "higher"
    formula = "sum_i c_i r_i / (||c|| ||r||)"
    source = "The cosine of the angle between two vectors; Golub and Van Loan, Matrix Computations, section 2.4."

    def compare_pair(self, pair: MeasuredPair) -> float:
        """Gives the cosine of the angle between the tensors as vectors of their finite elements."""
        if pair.measures.nonfinite_differs:
            return math.nan
        sums = pair.sums
        if sums is not None and sums.squares_candidate and sums.squares_reference:
            norms = math.sqrt(sums.squares_candidate) * math.sqrt(sums.squares_reference)
            return 1.0 if pair.measures.equal else max(-1.0, min(1.0, sums.product / norms))
        scales = (_peak(pair.candidate), _peak(pair.reference))
        if 0 in scales:
            return math.nan
        product = squares_x = squares_y = 0.0
        for block in pair.blocks():
            x, y = block.candidate / scales[0], block.reference / scales[1]
            product += float(np.einsum("i,i", x, y))
            squares_x += float(np.einsum("i,i", x, x))
            squares_y += float(np.einsum("i,i", y, y))
        cosine = product / (math.sqrt(squares_x) * math.sqrt(squares_y))
        return 1.0 if pair.measures.equal else max(-1.0, min(1.0, cosine))


def _peak(values: NDArray[Any]) -> float:
    """Gives the largest finite magnitude, 0 when there is none."""
    return max(
        (float(np.abs(b.candidate).max(initial=0.0)) for b in MeasuredPair(values, values).blocks()), default=0.0
    )
