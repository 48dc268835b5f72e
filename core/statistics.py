"""The statistics columns of a record over one array, and their merge over shards.

This is the definition that every kernel is tested against; ``measure`` itself takes the C kernel where there is one
(``core.kernels``). It works on blocks that stay in cache and never copies a large array as a whole. Minimum, maximum,
mean and norm are over the finite elements; NaN and infinities are only counted. Complex numbers count as two real
elements, bool as 0 and 1. Integers beyond 2^53 enter rounded to the nearest float64, zeros are counted before that.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from msprobe.core.kernels.arrays import STATISTICS, Result, measure_array

Array = NDArray[Any]
Doubles = NDArray[np.float64]

#: Elements of one block: 256 KiB in float64, which stays in the second-level cache, and small enough that no BLAS
#: starts threads for it.
BLOCK: Final = 32768
#: Elements of one scalar product.
DOT_PIECE: Final = 4096
#: Squares of numbers between these bounds neither overflow, in a sum of up to 2^64 of them, nor lose bits.
SAFE_SMALLEST: Final = 1e-140
SAFE_LARGEST: Final = 1e140
#: Below this share of the sum of squares the sum of squared deviations is not taken as a difference, which would
#: lose its leading digits, but from a second pass.
CANCELLATION: Final = 1e-4


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a record says of a tensor; the floating-point fields are NaN when no element is finite.

    ``m2`` and ``norm`` are +Inf where the true value exceeds float64; ``m2`` is 0 where it is below it.
    """

    finite: int = 0
    min: float = math.nan
    max: float = math.nan
    mean: float = math.nan
    mean_abs: float = math.nan
    m2: float = math.nan
    norm: float = math.nan
    nan: int = 0
    pos_inf: int = 0
    neg_inf: int = 0
    zero: int = 0


def measure(values: Array) -> Statistics:
    """Measures an array of any real, complex, integer or bool dtype and any layout."""
    result = measure_array(values, STATISTICS)
    if result is None:
        return measure_blocks(flat_blocks(real_elements(values)))
    return _of_kernel(result, values.size * (2 if values.dtype.kind == "c" else 1))


def _of_kernel(result: Result, count: int) -> Statistics:
    low, high, mean, mean_abs, m2, norm = result[0][:6].tolist()
    nan, pos_inf, neg_inf, zero = result[1][:4].tolist()
    finite = count - nan - pos_inf - neg_inf
    return Statistics(finite, low, high, mean, mean_abs, m2, norm, nan, pos_inf, neg_inf, zero)


def measure_blocks(blocks: Iterable[Array]) -> Statistics:
    """Measures an array that comes in blocks, as ``flat_blocks`` cuts them."""
    return merge([_measure_block(block) for block in blocks])


def merge(parts: Iterable[Statistics]) -> Statistics:
    """Combines the statistics of disjoint parts into those of the whole.

    The mean is weighted with finite counts; second moments combine as in Chan, Golub, LeVeque, Updating Formulae and a
    Pairwise Algorithm for Computing Sample Variances, 1979.
    """
    parts = list(parts)
    if len(parts) == 1:
        return parts[0]
    nan, pos_inf, neg_inf, zero = (
        sum(getattr(part, name) for part in parts) for name in ("nan", "pos_inf", "neg_inf", "zero")
    )
    parts = [part for part in parts if part.finite]
    if not parts:
        return Statistics(nan=nan, pos_inf=pos_inf, neg_inf=neg_inf, zero=zero)
    finite = sum(part.finite for part in parts)
    mean = math.fsum(part.mean * (part.finite / finite) for part in parts)
    return Statistics(
        finite=finite,
        min=min(part.min for part in parts),
        max=max(part.max for part in parts),
        mean=mean,
        mean_abs=math.fsum(part.mean_abs * (part.finite / finite) for part in parts),
        m2=sum(part.m2 + _squared(part.mean - mean, part.finite) for part in parts),
        norm=math.hypot(*(part.norm for part in parts)),
        nan=nan,
        pos_inf=pos_inf,
        neg_inf=neg_inf,
        zero=zero,
    )


def real_elements(values: Array) -> Array:
    """Gives the same elements as real numbers: complex ones as pairs along a new last axis, bool as 0 and 1."""
    if values.dtype.kind == "c":
        if values.flags.c_contiguous:
            return values.reshape(-1).view(values.real.dtype).reshape(*values.shape, 2)
        return np.stack([values.real, values.imag], axis=-1)
    return values.view(np.uint8) if values.dtype.kind == "b" else values


def flat_blocks(values: Array, block: int = BLOCK) -> Iterator[Array]:
    """Cuts an array into one-dimensional contiguous blocks in row-major order, copying one piece at a time at most."""
    if values.flags.c_contiguous:
        flat = values.reshape(-1)
        for start in range(0, flat.size, block):
            yield flat[start : start + block]
    elif not values.size:
        return
    elif values.size <= block:
        yield np.ascontiguousarray(values).reshape(-1)
    elif values[0].size >= block:
        for part in values:
            yield from flat_blocks(part, block)
    else:
        step = max(1, block // values[0].size)
        for start in range(0, len(values), step):
            yield np.ascontiguousarray(values[start : start + step]).reshape(-1)


class _Scratch(threading.local):
    """Memory that each thread reuses for every block."""

    def __init__(self) -> None:
        self.doubles: Doubles = np.empty(BLOCK, np.float64)


_scratch = _Scratch()


def _measure_block(block: Array) -> Statistics:
    low, high = float(np.minimum.reduce(block)), float(np.maximum.reduce(block))
    if math.isfinite(low) and math.isfinite(high):
        return _measure_finite(block, low, high)
    nan = int(np.count_nonzero(np.isnan(block)))
    pos_inf = int(np.count_nonzero(block == np.inf))
    neg_inf = int(np.count_nonzero(block == -np.inf))
    finite = block[np.isfinite(block)]
    if not finite.size:
        return Statistics(nan=nan, pos_inf=pos_inf, neg_inf=neg_inf)
    rest = _measure_finite(finite, float(finite.min()), float(finite.max()))
    return Statistics(
        rest.finite, rest.min, rest.max, rest.mean, rest.mean_abs, rest.m2, rest.norm, nan, pos_inf, neg_inf, rest.zero
    )


def _measure_finite(block: Array, low: float, high: float) -> Statistics:
    count = block.size
    doubles = _scratch.doubles[:count]
    np.copyto(doubles, block)
    peak = max(-low, high)
    scale = 1.0 if SAFE_SMALLEST < peak < SAFE_LARGEST or peak == 0 else peak
    if scale != 1.0:
        np.divide(doubles, scale, out=doubles)
    total = float(np.add.reduce(doubles))
    squares = _sum_of_squares(doubles)
    m2 = squares - total * total / count
    if m2 < CANCELLATION * squares:
        m2 = _centred_squares(doubles, total / count)
    if low < 0:
        np.absolute(doubles, out=doubles)
        absolute = float(np.add.reduce(doubles))
    else:
        absolute = total
    return Statistics(
        finite=count,
        min=low,
        max=high,
        mean=total / count * scale,
        mean_abs=absolute / count * scale,
        m2=m2 * scale * scale,
        norm=math.sqrt(squares) * scale,
        zero=block.size - int(np.count_nonzero(block != 0)) if low <= 0 <= high else 0,
    )


def _centred_squares(doubles: Doubles, mean: float) -> float:
    """Sums squared deviations, corrected for the rounding of the mean."""
    deviations = doubles - mean
    rounding = float(deviations.sum())
    return max(0.0, _sum_of_squares(deviations) - rounding * rounding / doubles.size)


def _sum_of_squares(doubles: Doubles) -> float:
    """Sums squares by BLAS, in pieces that are too small for it to start threads for."""
    if doubles.size % DOT_PIECE:
        return float(np.einsum("i,i", doubles, doubles))
    return float(np.matmul(doubles.reshape(-1, 1, DOT_PIECE), doubles.reshape(-1, DOT_PIECE, 1)).sum())


def _squared(deviation: float, weight: int) -> float:
    """Multiplies out ``weight * deviation**2`` with overflow to infinity."""
    return deviation * deviation * weight


def columns(measured: Sequence[Statistics]) -> dict[str, Array]:
    """Lays statistics out as the columns of ``core.records``."""
    names = (("min", float), ("max", float), ("mean", float), ("mean_abs", float), ("m2", float), ("norm", float))
    counts = ("nan", "pos_inf", "neg_inf", "zero")
    table: dict[str, Array] = {name: np.array([getattr(s, name) for s in measured], kind) for name, kind in names}
    return table | {name: np.array([getattr(s, name) for s in measured], np.int64) for name in counts}
