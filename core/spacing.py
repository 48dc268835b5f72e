"""The spacing of the numbers of a format: the unit in which differences in the last place are counted."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

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


def spacing(values: Doubles, formats: tuple[str, str]) -> Doubles:
    """Gives the unit in the last place at each value, in the coarser format; 1 when neither is a float format."""
    coarser = coarser_precision(formats)
    if coarser is None:
        return np.ones_like(values)
    bits, smallest = coarser
    exponent = np.frexp(values)[1] - 1
    exponent[values == 0] = smallest
    unit: Doubles = np.ldexp(1.0, np.maximum(exponent, smallest) - (bits - 1))
    return unit


def coarser_precision(formats: tuple[str, str]) -> tuple[int, int] | None:
    """Gives the precision and smallest exponent of the coarser float format, None when neither is one."""
    return min((PRECISIONS[name] for name in (_HALF_OF.get(f, f) for f in formats) if name in PRECISIONS), default=None)


def format_of(values: NDArray[Any]) -> str:
    """Names the float format of an array, complex by that of its halves; empty for others."""
    return _OF_DTYPE.get(values.dtype.str[1:], "")
