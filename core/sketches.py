"""Random projections of a tensor that estimate, long after, how far it was from another one.

A sketch is ``SKETCH_SIZE`` sums of the tensor's finite elements under random signs. It is linear: the sketch of a
difference is the difference of the sketches, and the sketch of a sharded tensor is the sum over its shards, because
the sign depends only on the element's index in the whole tensor.

With independent signs the square of one projection has the squared L2 norm as its mean, and a variance of at most
twice its square (Alon, Matias, Szegedy, The Space Complexity of Approximating the Frequency Moments, STOC 1996; as
an embedding: Achlioptas, Database-friendly Random Projections, PODS 2001). Over 8 projections the estimated squared
norm thus has a relative standard deviation of at most 1/2, its root one of about 1/4: it tells 1e-6 from 1e-5, not
1.0e-6 from 1.1e-6.

The sign of projection j at index i is (-1) to the power  D(i) + W(j, i mod 64) + T(j, i div 64).  D takes one fresh bit
of a ``core.mixing`` word for each index, so within one projection all signs are independent; W and T make the
projections differ. W is bit j of a word for each lane; T is the parity of  j and b,  where b is one of 8 numbers that a
word draws for each group of 64. For two projections T differs in half of those, so their products are correlated only
inside groups, which adds at most 7/8 of (sum of squared group energies) / (total energy squared) to half the relative
variance above: nothing unless most of the difference sits in one group. In return an element is added to one of 8 rows
of sums, with its sign D, for all projections at once; T and W are applied to the rows at the end.
"""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from msprobe.core.kernels.arrays import FLOATS, SKETCH, measure_array
from msprobe.core.mixing import Words, keys
from msprobe.core.records import SKETCH_SIZE
from msprobe.core.runs import Runs, indices_in_blocks, pieces, real_runs
from msprobe.core.statistics import flat_blocks, real_elements

Array = NDArray[Any]
Doubles = NDArray[np.float64]

#: Indices that share one word of D and one row of T: the bits of a word.
GROUP: Final = 64
#: Groups that share one word of T, and the rows of T.
DRAWS: Final = 16
ROWS: Final = 8
#: Elements worked on at a time: their product with the 64 x 8 matrix is too small for a BLAS to start threads.
BLOCK: Final = 32768

#: Elements are made smaller by this factor, which costs no bits, where their sum could overflow on the way.
HEADROOM: Final = 2.0**-64
#: Elements above this could.
LARGE: Final = 1e280
#: Elements of a run from which NumPy projects each run by itself.
LONG_RUN: Final = 4096

#: First 64 bits of the fractional parts of sqrt 2, 3 and 5 (public numbers with nothing up the sleeve).
SEED_D: Final = 0x6A09E667F3BCC908
SEED_W: Final = 0xBB67AE8584CAA73B
SEED_T: Final = 0x3C6EF372FE94F82B


def sketch(values: Array, *, offset: int = 0, runs: Runs | None = None) -> Doubles:
    """Projects an array's finite elements; +-Inf where a sum exceeds float64, never NaN.

    Args:
        values: Any real, complex (two real elements each), integer or bool array.
        offset: Index of the first real element in the whole tensor, for a shard that is one contiguous run of it.
        runs: Where the elements stand in the whole tensor, for any other shard (``core.runs``).

    Raises:
        ValueError: The runs hold another number of elements.
    """
    where = None if runs is None else real_runs(runs, values.size, 2 if values.dtype.kind == "c" else 1)
    measured = measure_array(values, SKETCH, offset=offset, runs=where)
    if measured is not None:
        return measured[0][len(FLOATS) :].copy()
    values = real_elements(values)
    if where is None:
        return sketch_blocks(flat_blocks(values, BLOCK), offset=offset)
    flat = np.ascontiguousarray(values).reshape(-1)
    if where[1] >= LONG_RUN:
        return merge(sketch_blocks(flat_blocks(run, BLOCK), offset=start) for run, start in pieces(flat, *where))
    return _project_scattered(flat, where)


def _project_scattered(flat: Array, where: tuple[NDArray[np.int64], int]) -> Doubles:
    total, done = np.zeros(SKETCH_SIZE), 0
    with np.errstate(over="ignore", invalid="ignore"):
        for indices in indices_in_blocks(*where, BLOCK):
            elements = flat[done : done + indices.size].astype(np.float64)
            elements[~np.isfinite(elements)] = 0.0
            done += indices.size
            large = np.abs(elements).max(initial=0.0) > LARGE
            total += (elements * HEADROOM @ signs(indices)) / HEADROOM if large else elements @ signs(indices)
    return _without_nan(total)


def sketch_blocks(blocks: Iterable[Array], *, offset: int = 0) -> Doubles:
    """Projects an array that comes in blocks of at most ``BLOCK`` elements in row-major order."""
    total = np.zeros(SKETCH_SIZE)
    position = offset
    with np.errstate(over="ignore", invalid="ignore"):
        for block in blocks:
            total += _project_run(block, position)
            position += block.size
        return _without_nan(total)


def merge(parts: Iterable[Doubles]) -> Doubles:
    """Adds the sketches of disjoint parts of a tensor to that of the whole."""
    total = np.zeros(SKETCH_SIZE)
    with np.errstate(over="ignore", invalid="ignore"):
        for part in parts:
            total += part
        return _without_nan(total)


def _without_nan(total: Doubles) -> Doubles:
    """Puts +Inf where opposite overflows met, so that NaN keeps meaning that there is no sketch."""
    if not math.isfinite(total.sum()):
        total[np.isnan(total)] = np.inf
    return total


def signs(indices: Array) -> Doubles:
    """Gives the signs of all projections at each index, as an array of (indices, projections)."""
    where = indices.astype(np.uint64)
    group, lane = where >> np.uint64(6), where & np.uint64(63)
    fresh = (keys(group, SEED_D) >> lane) & np.uint64(1)
    flips = fresh[:, None] ^ _bits(keys(lane, SEED_W))
    result: Doubles = (1.0 - 2.0 * flips.astype(np.float64)) * row_signs()[rows_of_groups(group)]
    return result


def lane_signs() -> Doubles:
    """Gives the factor W as signs: (64 lanes, projections)."""
    return 1.0 - 2.0 * _bits(keys(np.arange(GROUP, dtype=np.uint64), SEED_W)).astype(np.float64)


def row_signs() -> Doubles:
    """Gives the factor T as signs: (rows, projections)."""
    words = np.arange(ROWS)[:, None] & np.arange(SKETCH_SIZE)
    parity = (words ^ words >> 1 ^ words >> 2) & 1
    return 1.0 - 2.0 * parity.astype(np.float64)


def rows_of_groups(groups: Words) -> NDArray[np.int64]:
    """Gives the row of T of each group."""
    words = keys(groups // np.uint64(DRAWS), SEED_T)
    drawn = words >> np.uint64(4) * (groups % np.uint64(DRAWS)) & np.uint64(ROWS - 1)
    return drawn.astype(np.int64)


def group_signs(first: int, count: int) -> Doubles:
    """Gives the factor T as signs for ``count`` groups from ``first`` on: (groups, projections)."""
    signs_of_rows: Doubles = row_signs()[rows_of_groups(_groups(first, count))]
    return signs_of_rows


def element_signs(first: int, count: int) -> NDArray[np.int8]:
    """Gives the factor D as signs for the elements of ``count`` groups from ``first`` on: (groups * 64,)."""
    words = keys(_groups(first, count), SEED_D).astype("<u8")
    bits = np.unpackbits(words.view(np.uint8), bitorder="little").view(np.int8)
    result: NDArray[np.int8] = 1 - 2 * bits
    return result


def estimate_error(candidate: Array, reference: Array) -> Doubles:
    """Estimates the L2 norm of the difference of two tensors from their sketches, for each row.

    NaN where either sketch is absent (NaN). Exactly 0 only for equal sketches.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.asarray(candidate, np.float64) - np.asarray(reference, np.float64)
    return estimate_norm(difference)


def estimate_norm(sketches: Array) -> Doubles:
    """Estimates the L2 norm of the tensors behind sketches: the root mean square over projections."""
    peak = np.max(np.abs(sketches), axis=-1, keepdims=True)
    scale = np.where((peak > 0) & np.isfinite(peak), peak, 1.0)
    with np.errstate(over="ignore"):
        scaled = sketches / scale
        result: Doubles = np.sqrt(np.mean(scaled * scaled, axis=-1)) * scale[..., 0]
    return result


#: Relative standard deviation that an estimated norm has at most, to first order: half that of its square.
RELATIVE_DEVIATION: Final = 0.5 * math.sqrt(2.0 / SKETCH_SIZE)


def _groups(first: int, count: int) -> Words:
    return np.arange(first, first + count, dtype=np.uint64)


def _bits(words: Words) -> Words:
    return (words[:, None] >> np.arange(SKETCH_SIZE, dtype=np.uint64)) & np.uint64(1)


class _Scratch(threading.local):
    """Memory that each thread reuses for every block."""

    def __init__(self) -> None:
        self.doubles: Doubles = np.empty(BLOCK, np.float64)


_scratch = _Scratch()


@functools.cache
def _lanes() -> Doubles:
    return lane_signs()


@functools.lru_cache(maxsize=128)
def _block_signs(first: int) -> tuple[NDArray[np.float32], Doubles]:
    """D and T of the block of groups from ``first`` on; kept, because tensors of a model share their indices."""
    groups = BLOCK // GROUP
    return element_signs(first, groups).astype(np.float32), group_signs(first, groups)


def _project_run(piece: Array, position: int) -> Doubles:
    """Projects one contiguous run of at most ``BLOCK`` elements that starts at index ``position``."""
    start = position % BLOCK
    if start + piece.size > BLOCK:
        cut = BLOCK - start
        return _project_run(piece[:cut], position) + _project_run(piece[cut:], position + cut)
    end = start + piece.size
    lower, upper = start - start % GROUP, end + -end % GROUP
    fresh, groups = _block_signs((position - start) // GROUP)
    factors = groups[lower // GROUP : upper // GROUP]
    padded = _scratch.doubles[: upper - lower]
    padded[: start - lower] = 0.0
    padded[end - lower :] = 0.0
    np.multiply(piece, fresh[start:end], out=padded[start - lower : end - lower], casting="unsafe")
    projection = _sum_groups(padded, factors)
    if not math.isfinite(projection.sum()):
        padded[~np.isfinite(padded)] = 0.0
        projection = _sum_groups(padded, factors)
    if not math.isfinite(projection.sum()):
        projection = _sum_groups(padded * HEADROOM, factors) / HEADROOM
    return projection


def _sum_groups(elements: Doubles, factors: Doubles) -> Doubles:
    """Applies W and T to elements that carry D already."""
    total: Doubles = np.einsum("gj,gj->j", elements.reshape(-1, GROUP) @ _lanes(), factors)
    return total
