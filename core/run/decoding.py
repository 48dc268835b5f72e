"""The values behind saved bits: every format as the NumPy dtype that holds it exactly."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NUMPY = {
    "fp64": "float64",
    "fp32": "float32",
    "tf32": "float32",
    "fp16": "float16",
    "complex64": "complex64",
    "complex128": "complex128",
    "bool": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
#: Exponent bits, mantissa bits, exponent bias, and which codes are no finite numbers.
_FP8 = {
    "fp8_e4m3": (4, 3, 7, "last code"),
    "fp8_e5m2": (5, 2, 15, "last exponent"),
    "fp8_e4m3fnuz": (4, 3, 8, "negative zero"),
    "fp8_e5m2fnuz": (5, 2, 16, "negative zero"),
}


def decode(dtype: str, shape: tuple[int, ...], bits: NDArray[np.uint8]) -> NDArray[Any]:
    """Gives the values of a tensor by canonical format: bf16 and fp8 as float32, complex32 as complex64.

    Raises:
        ValueError: The format is not known.
    """
    bits = np.ascontiguousarray(bits)
    if dtype in _NUMPY:
        return bits.view(_NUMPY[dtype]).reshape(shape)
    if dtype == "bf16":
        return (bits.view(np.uint16).astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if dtype == "complex32":
        return bits.view(np.float16).astype(np.float32).view(np.complex64).reshape(shape)
    if dtype == "fp8_e8m0":
        return _e8m0()[bits].reshape(shape)
    if dtype in _FP8:
        return _fp8(dtype)[bits].reshape(shape)
    raise ValueError(f"values of format {dtype!r} cannot be decoded")


@cache
def _e8m0() -> NDArray[np.float32]:
    powers = np.ldexp(1.0, np.arange(255) - 127).astype(np.float32)
    return np.append(powers, np.float32(np.nan))


@cache
def _fp8(dtype: str) -> NDArray[np.float32]:
    exponent_bits, mantissa_bits, bias, special = _FP8[dtype]
    codes = np.arange(256)
    mantissa = codes & (2**mantissa_bits - 1)
    exponent = codes >> mantissa_bits & (2**exponent_bits - 1)
    fraction = mantissa / 2**mantissa_bits + (exponent > 0)
    values = np.ldexp(fraction, np.maximum(exponent, 1) - bias) * np.where(codes >= 128, -1.0, 1.0)
    if special == "negative zero":
        values[128] = np.nan
    elif special == "last code":
        values[[127, 255]] = np.nan
    else:
        last = exponent == 2**exponent_bits - 1
        values[last] = np.where(mantissa[last] > 0, np.nan, np.copysign(np.inf, values[last]))
    exact: NDArray[np.float32] = values.astype(np.float32)
    return exact
