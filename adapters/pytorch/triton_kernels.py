"""Statistics, sketch and checksums of a tensor in one read, by a Triton kernel, for CUDA devices.

Each program measures one block of the whole tensor and writes a row of partial results; torch operators combine the
rows, a hundredth of the data, where they are. Nothing waits. bf16 is read as bits and shifted to float32, for Triton's
interpreter computes wrongly in bf16. Sums run over 128 elements at most in float32, scaled by a power of two near the
block's largest magnitude so that no square overflows or vanishes, and in float64 from there on.

The definitions are those of ``core.statistics``, ``core.sketches`` and ``core.checksums``.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from msprobe.core import mixing, sketches
from msprobe.core.checksums import KEY_ROW, NAN_PATTERNS, SEED_COLUMN, SEED_ROW
from msprobe.core.records import SKETCH_SIZE

#: What a program measures: a multiple of a row of keys and of 16 groups, which share a word of T.
BLOCK: Final = 4096
#: Formats that are read, and how the kernel sees their memory.
FORMATS: Final = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}
_MEMORY: Final = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}

_FLOATS: Final = 8 + SKETCH_SIZE
_COUNTS: Final = 6


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


_GOLDEN: Final = tl.constexpr(_signed(mixing.GOLDEN))
_FIRST: Final = tl.constexpr(_signed(mixing.ROUNDS[0][1]))
_SECOND: Final = tl.constexpr(_signed(mixing.ROUNDS[1][1]))
_MULTIPLIER: Final = tl.constexpr(mixing.SCATTER_MULTIPLIER)
_INCREMENT: Final = tl.constexpr(_signed(mixing.SCATTER_INCREMENT))
_SEED_D: Final = tl.constexpr(_signed(sketches.SEED_D))
_SEED_T: Final = tl.constexpr(_signed(sketches.SEED_T))
_SEED_ROW: Final = tl.constexpr(_signed(SEED_ROW))
_KEY_ROW: Final = tl.constexpr(KEY_ROW)
_SKETCH_SIZE: Final = tl.constexpr(SKETCH_SIZE)
_LARGEST: Final = tl.constexpr(3.4028234663852886e38)
_INF: Final = tl.constexpr(float("inf"))
_LOW_HALF: Final = tl.constexpr(0xFFFFFFFF)
_HIGH_HALF: Final = tl.constexpr(-(2**32))


@triton.jit
def _key(indices, seed):  # noqa: ANN001, ANN202
    """A ``core.mixing`` key; int64 arithmetic wraps, and right shifts are masked to be logical."""
    word = indices * _GOLDEN + seed
    word = (word ^ ((word >> 30) & 0x3FFFFFFFF)) * _FIRST
    word = (word ^ ((word >> 27) & 0x1FFFFFFFFF)) * _SECOND
    return word ^ ((word >> 31) & 0x1FFFFFFFF)


@triton.jit
def _scatter(words):  # noqa: ANN001, ANN202
    """``core.mixing.scatter_in_place`` of words whose upper half is 0."""
    product = words * _MULTIPLIER + _INCREMENT
    low = product & _LOW_HALF
    product = product ^ ((low * low) & _HIGH_HALF)
    return product ^ ((product >> 32) & _LOW_HALF)


@triton.jit
def _wide_sum(x, BLOCK: tl.constexpr):  # noqa: ANN001, ANN202, N803
    """Sums float32 over 128 elements, and those sums in float64."""
    return tl.sum(tl.sum(tl.reshape(x, (BLOCK // 128, 128)), axis=1).to(tl.float64), axis=0)


@triton.jit
def _statistics(x, is_there, finite, floats, counts, BLOCK: tl.constexpr):  # noqa: ANN001, ANN202, N803
    is_nan = x != x
    magnitude = tl.abs(x)
    number = tl.sum(finite.to(tl.int64), axis=0)
    peak = tl.max(tl.where(finite, magnitude, 0.0), axis=0)
    exponent = peak.to(tl.int32, bitcast=True) >> 23
    exponent = tl.minimum(tl.maximum(exponent, 2), 252)
    inverse = ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    scale = (exponent << 23).to(tl.float32, bitcast=True).to(tl.float64)
    y = tl.where(finite, x, 0.0) * inverse
    some = tl.maximum(number, 1).to(tl.float64)
    total = _wide_sum(y, BLOCK)
    deviation = tl.where(finite, y - (total / some).to(tl.float32), 0.0)
    rounding = _wide_sum(deviation, BLOCK)
    m2 = _wide_sum(deviation * deviation, BLOCK) - rounding * rounding / some
    tl.store(floats + 0, tl.min(tl.where(finite, x, _INF), axis=0).to(tl.float64))
    tl.store(floats + 1, tl.max(tl.where(finite, x, -_INF), axis=0).to(tl.float64))
    tl.store(floats + 2, ((total / some).to(tl.float32).to(tl.float64) + rounding / some) * scale)
    tl.store(floats + 3, _wide_sum(tl.abs(y), BLOCK) * scale)
    tl.store(floats + 4, tl.maximum(m2, 0.0) * scale * scale)
    tl.store(floats + 5, _wide_sum(y * y, BLOCK) * scale * scale)
    tl.store(floats + 6, number.to(tl.float64))
    tl.store(counts + 0, tl.sum((is_there & is_nan).to(tl.int64), axis=0))
    tl.store(counts + 1, tl.sum((is_there & (x == _INF)).to(tl.int64), axis=0))
    tl.store(counts + 2, tl.sum((is_there & (x == -_INF)).to(tl.int64), axis=0))
    tl.store(counts + 3, tl.sum((is_there & (x == 0)).to(tl.int64), axis=0))


@triton.jit
def _checksums(words, first, counts, column_keys, BLOCK: tl.constexpr):  # noqa: ANN001, ANN202, N803
    scattered = words
    tl.store(counts + 5, tl.sum(scattered, axis=0))
    columns = tl.load(column_keys + tl.arange(0, _KEY_ROW))
    rows = _key(first // _KEY_ROW + tl.arange(0, BLOCK // _KEY_ROW), _SEED_ROW) | 1
    of_rows = tl.sum(tl.reshape(scattered, (BLOCK // _KEY_ROW, _KEY_ROW)) * columns[None, :], axis=1)
    tl.store(counts + 4, tl.sum(of_rows * rows, axis=0))


@triton.jit
def _sketch(x, first, floats, lane_signs, BLOCK: tl.constexpr):  # noqa: ANN001, ANN202, N803
    groups = first // 64 + tl.arange(0, BLOCK // 64)
    lanes = tl.arange(0, 64)
    flips = (_key(groups, _SEED_D)[:, None] >> lanes[None, :].to(tl.int64)) & 1
    wide = tl.reshape(x, (BLOCK // 64, 64)).to(tl.float64)
    wide = tl.where(flips == 1, -wide, wide)
    drawn = _key(groups // 16, _SEED_T) >> ((groups % 16) * 4)
    for j in tl.static_range(_SKETCH_SIZE):
        parity = drawn & j
        parity = (parity ^ (parity >> 1) ^ (parity >> 2)) & 1
        by_lane = tl.sum(tl.where((parity == 1)[:, None], -wide, wide), axis=0)
        tl.store(floats + 8 + j, tl.sum(by_lane * tl.load(lane_signs + j * 64 + lanes), axis=0))


@triton.jit(do_not_specialize=["offset", "size"])
def _measure(  # noqa: ANN202, PLR0913
    memory,  # noqa: ANN001
    floats,  # noqa: ANN001
    counts,  # noqa: ANN001
    column_keys,  # noqa: ANN001
    lane_signs,  # noqa: ANN001
    offset: tl.int64,
    size: tl.int64,
    FORMAT: tl.constexpr,  # noqa: N803
    CANONICAL: tl.constexpr,  # noqa: N803
    STATISTICS: tl.constexpr,  # noqa: N803
    SKETCH: tl.constexpr,  # noqa: N803
    CHECKSUMS: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr,  # noqa: N803
    FLOATS: tl.constexpr,  # noqa: N803
    COUNTS: tl.constexpr,  # noqa: N803
):
    program = tl.program_id(0).to(tl.int64)
    first = (offset // BLOCK + program) * BLOCK  # blocks begin at multiples of BLOCK of the whole tensor
    local = first - offset + tl.arange(0, BLOCK)
    is_there = (local >= 0) & (local < size)
    bits = tl.load(memory + local, mask=is_there, other=0)
    if FORMAT == "fp32":
        words = bits.to(tl.int64) & _LOW_HALF
        x = bits.to(tl.float32, bitcast=True)
    elif FORMAT == "bf16":
        words = bits.to(tl.int64) & 0xFFFF
        x = (bits.to(tl.int32) << 16).to(tl.float32, bitcast=True)
    else:
        words = bits.to(tl.int64) & 0xFFFF
        x = bits.to(tl.float16, bitcast=True).to(tl.float32)
    is_nan = x != x
    magnitude = tl.abs(x)
    finite = is_there & (magnitude <= _LARGEST)
    floats += program * FLOATS
    counts += program * COUNTS
    if STATISTICS:
        _statistics(x, is_there, finite, floats, counts, BLOCK)
    if CHECKSUMS:
        scattered = _scatter(tl.where(is_nan, CANONICAL, words))
        _checksums(tl.where(is_there, scattered, 0), first, counts, column_keys, BLOCK)
    if SKETCH:
        _sketch(tl.where(finite, x, 0.0), first, floats, lane_signs, BLOCK)


def can_measure(values: Tensor) -> bool:
    """Tells whether the kernel reads a tensor: of a format it knows, in row-major order without gaps."""
    return values.dtype in FORMATS and values.is_contiguous() and values.numel() > 0


def measure(values: Tensor, what: frozenset[str], offset: int = 0) -> tuple[Tensor, Tensor]:
    """Gives a row of floats and one of counts in the order of ``slot_tables``; what was not asked for holds anything.

    ``offset`` is the index of the first element in the whole tensor.
    """
    size = values.numel()
    programs = (offset % BLOCK + size + BLOCK - 1) // BLOCK
    floats = torch.zeros(programs, _FLOATS, dtype=torch.float64, device=values.device)
    counts = torch.zeros(programs, _COUNTS, dtype=torch.int64, device=values.device)
    name = FORMATS[values.dtype]
    _measure[(programs,)](
        values.view(_MEMORY[values.dtype]).view(-1),
        floats,
        counts,
        *_tables(values.device),
        offset,
        size,
        FORMAT=name,
        CANONICAL=NAN_PATTERNS[name][2],
        STATISTICS="statistics" in what,
        SKETCH="sketch" in what,
        CHECKSUMS="checksums" in what,
        BLOCK=BLOCK,
        FLOATS=_FLOATS,
        COUNTS=_COUNTS,
        num_warps=8,
    )
    return _combined(floats), counts.sum(0)


def _combined(rows: Tensor) -> Tensor:
    """Combines the blocks' statistics as ``core.statistics.merge`` does, and adds their sketches."""
    low, high, mean, absolute, m2, squares, number = rows[:, :7].unbind(1)
    finite = number.sum()
    some = finite.clamp(min=1)
    whole = (mean * number).sum() / some
    spread = m2.sum() + ((mean - whole).square() * number).sum()
    statistics = [low.amin(), high.amax(), whole, absolute.sum() / some, spread, squares.sum().sqrt()]
    combined = torch.stack(statistics).masked_fill(finite == 0, float("nan"))
    return torch.cat([combined, rows[:, 8:].sum(0)])


@functools.cache
def _tables(device: torch.device) -> tuple[Tensor, Tensor]:
    with torch.inference_mode(mode=False):
        keys: Any = mixing.keys(np.arange(KEY_ROW, dtype=np.uint64), SEED_COLUMN) | np.uint64(1)
        signs = np.ascontiguousarray(sketches.lane_signs().T)
        return torch.from_numpy(keys.view(np.int64)).to(device), torch.from_numpy(signs).to(device)
