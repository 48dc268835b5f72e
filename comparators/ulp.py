"""Compare two tensors by their largest difference in units in the last place.

The unit is the spacing of numbers at the reference's element, in the coarser of the two formats: comparing bf16 with
fp32, a bf16 result that is rounded correctly is at most half a unit away.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from msprobe.core.measures import pair_blocks, pair_sums

Doubles = NDArray[np.float64]

#: Format -> (bits of the significand with the hidden one, smallest exponent of a normal number).
PRECISIONS: Final[dict[str, tuple[int, int]]] = {
    "fp64": (53, -1022),
    "fp32": (24, -126),
    "tf32": (11, -126),
    "fp16": (11, -14),
    "bf16": (8, -126),
    "fp8_e4m3": (4, -6),
    "fp8_e5m2": (3, -14),
    "fp8_e4m3fnuz": (4, -7),
    "fp8_e5m2fnuz": (3, -15),
    "fp8_e8m0": (1, -127),
}
_HALF_OF: Final = {"complex32": "fp16", "complex64": "fp32", "complex128": "fp64"}
_OF_DTYPE: Final = {"f2": "fp16", "f4": "fp32", "f8": "fp64", "c8": "fp32", "c16": "fp64"}


class Ulp:
    """0 for equal values, 1 for neighbours; integers differ in units of 1.

    +Inf when non-finite elements are unlike, NaN when no element is finite.
    """

    name = "ulp"
    better = "lower"
    formula = "max_i |c_i - r_i| / ulp(r_i)"
    source = "Muller, On the definition of ulp(x), INRIA RR-5504, 2005 (Goldberg's definition)."
    #: ``compare`` takes the formats that the tensors were recorded in, which arrays cannot tell (bf16 is read as fp32).
    wants_formats = True

    def compare(
        self, candidate: NDArray[Any], reference: NDArray[Any], formats: tuple[str, str] | None = None
    ) -> float:
        """Gives the largest distance; ``formats`` are canonical names, by default those of the arrays' dtypes."""
        names = formats or (_format_of(candidate), _format_of(reference))
        bits, smallest = _coarser(names) or (0, 0)
        sums = pair_sums(candidate, reference, smallest_exponent=smallest)
        if bits and sums is not None and sums.finite and not sums.unlike:
            return sums.max_distance * 2.0 ** (bits - 1)
        largest = math.nan
        for block in pair_blocks(candidate, reference):
            if block.unlike:
                return math.inf
            if block.difference.size:
                with np.errstate(over="ignore"):
                    distance = np.abs(block.difference) / spacing(block.reference, names)
                largest = float(np.fmax(largest, distance.max()))
        return largest


def spacing(values: Doubles, formats: tuple[str, str]) -> Doubles:
    """Gives the unit in the last place at each value, in the coarser format; 1 when neither is a float format."""
    coarser = _coarser(formats)
    if coarser is None:
        return np.ones_like(values)
    bits, smallest = coarser
    exponent = np.frexp(values)[1] - 1
    exponent[values == 0] = smallest
    unit: Doubles = np.ldexp(1.0, np.maximum(exponent, smallest) - (bits - 1))
    return unit


def _coarser(formats: tuple[str, str]) -> tuple[int, int] | None:
    """Gives the precision and smallest exponent of the coarser float format, None when neither is one."""
    return min((PRECISIONS[name] for name in (_HALF_OF.get(f, f) for f in formats) if name in PRECISIONS), default=None)


def _format_of(values: NDArray[Any]) -> str:
    return _OF_DTYPE.get(values.dtype.str[1:], "")
