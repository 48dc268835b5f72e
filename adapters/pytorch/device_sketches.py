"""Sketches, checksums and row statistics of core with torch operators, on any device and without waiting.

They agree with NumPy's: checksums and counts bit for bit, sums in float64 up to the order of addition. int64
arithmetic wraps modulo 2^64, so only the right shift needs care.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Final

import numpy as np
import torch
from torch import Tensor

from msprobe.adapters.pytorch.device_statistics import finite_doubles, real_blocks
from msprobe.adapters.pytorch.dtypes import NAMES
from msprobe.core import mixing, sketches
from msprobe.core.checksums import HALVES, KEY_ROW, NAN_PATTERNS, SEED_COLUMN, SEED_ROW
from msprobe.core.records import SKETCH_SIZE
from msprobe.core.row_statistics import NUM_PROJECTIONS
from msprobe.core.runs import Runs, real_runs
from msprobe.core.sketches import DRAWS, GROUP, HEADROOM, LARGE, ROWS

#: Elements worked on at a time; a projection needs eight float64 numbers for each.
BLOCK: Final = 2**21
#: The same where each element carries its index, and a row of signs.
SCATTERED_BLOCK: Final = 2**19

#: Formats whose sums can overflow float64.
_WIDE: Final = (torch.float64, torch.complex128)
_BITS: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_LOW_BITS: Final = {1: 0xFF, 2: 0xFFFF, 4: 0xFFFFFFFF}


def sketch(values: Tensor, runs: Runs | None = None) -> Tensor:
    """Projects the finite elements as ``core.sketches.sketch`` does, ``runs`` telling where they stand in the whole."""
    total = torch.zeros(SKETCH_SIZE, dtype=torch.float64, device=values.device)
    for piece, where in _placed_blocks(values, runs):
        if isinstance(where, Tensor):
            total += _project_scattered(piece, where)
            continue
        room = BLOCK - where % BLOCK
        for run in torch.split(piece, [room, piece.numel() - room]) if piece.numel() > room else (piece,):
            total += _project_run(run, where)
            where += run.numel()
    return total.masked_fill_(total.isnan(), float("inf")) if values.dtype in _WIDE else total


def _placed_blocks(values: Tensor, runs: Runs | None) -> Iterator[tuple[Tensor, int | Tensor]]:
    """Gives blocks of real elements, each with its first index in the whole tensor, or with all of them."""
    pair = 2 if values.is_complex() else 1
    starts, length = ((0,), values.numel()) if runs is None else runs
    if len(starts) == 1:
        position = int(starts[0]) * pair
        for piece in real_blocks(values, BLOCK):
            yield piece, position
            position += piece.numel()
        return
    starts, length = real_runs((starts, length), values.numel(), pair)
    first = torch.from_numpy(starts).to(values.device)
    position = 0
    for piece in real_blocks(values, SCATTERED_BLOCK):
        local = torch.arange(position, position + piece.numel(), dtype=torch.int64, device=piece.device)
        position += piece.numel()
        yield piece, first[local // length].add_(local % length)


def _project_scattered(piece: Tensor, indices: Tensor) -> Tensor:
    """Projects elements that stand anywhere in the whole tensor."""
    group, lane = indices >> 6, indices & (GROUP - 1)
    flips = (_keys(group.clone(), sketches.SEED_D) >> lane) & 1
    draws = _keys(group // DRAWS, sketches.SEED_T) >> (group % DRAWS).mul_(4)
    x = finite_doubles(piece).mul_(1 - 2 * flips)
    room = torch.where(x.abs().amax() > LARGE, HEADROOM, 1.0) if piece.dtype in _WIDE else 1.0
    factors = _lanes(piece.device)[lane] * _rows(piece.device)[draws & (ROWS - 1)]
    return (factors * (x * room)[:, None]).sum(0) / room


def _project_run(run: Tensor, position: int) -> Tensor:
    """Projects a contiguous run that starts at index ``position`` and lies inside one block."""
    fresh, groups = _signs(position // BLOCK, run.device)
    start = position % BLOCK
    x = finite_doubles(run) * fresh[start : start + run.numel()]
    room = torch.where(x.abs().amax() > LARGE, HEADROOM, 1.0) if run.dtype in _WIDE else 1.0
    x = torch.nn.functional.pad(x * room, (start % GROUP, -(start + run.numel()) % GROUP)).view(-1, GROUP)
    # Not a matrix product: cuBLAS refuses one in deterministic mode unless the user has configured it.
    projected = (x[:, :, None] * _lanes(run.device)).sum(1)
    first = start // GROUP
    return (projected * groups[first : first + len(projected)]).sum(0) / room


@functools.lru_cache(maxsize=16)
def _signs(number: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """The factors D and T of a block; made on the host and copied, which orders the copy before any stream's use."""
    count = BLOCK // GROUP
    with torch.inference_mode(mode=False):
        fresh = torch.from_numpy(sketches.element_signs(number * count, count))
        groups = torch.from_numpy(sketches.group_signs(number * count, count).astype("i1"))
        return fresh.to(device), groups.to(device)


@functools.cache
def _rows(device: torch.device) -> Tensor:
    with torch.inference_mode(mode=False):
        return torch.from_numpy(sketches.row_signs()).to(device)


@functools.cache
def _column_keys(device: torch.device) -> Tensor:
    with torch.inference_mode(mode=False):
        keys = mixing.keys(np.arange(KEY_ROW, dtype=np.uint64), SEED_COLUMN) | np.uint64(1)
        return torch.from_numpy(keys.view(np.int64)).to(device)


@functools.cache
def _lanes(device: torch.device) -> Tensor:
    with torch.inference_mode(mode=False):
        return torch.from_numpy(sketches.lane_signs()).to(device)


def checksums(values: Tensor, runs: Runs | None = None) -> tuple[Tensor, Tensor]:
    """Gives positional checksum and content sum as int64 scalars that hold the 64 bits of ``core.checksums``."""
    dtype = NAMES[values.dtype]
    positional = torch.zeros((), dtype=torch.int64, device=values.device)
    content = torch.zeros((), dtype=torch.int64, device=values.device)
    for piece, where in _placed_blocks(values, runs):
        words = scatter_(canonical_words(piece, dtype))
        content += words.sum()
        if not isinstance(where, Tensor):
            where = torch.arange(where, where + piece.numel(), dtype=torch.int64, device=piece.device)
        positional += words.mul_(_position_keys(where)).sum()
    return positional, content


def content_vectors(values: Tensor) -> tuple[Tensor, Tensor]:
    """Sums the content of rows and columns as ``core.content_vectors`` does; int64 vectors that hold the 64 bits."""
    dtype = NAMES[values.dtype]
    matrix = values.resolve_neg().reshape(values.shape[0], -1)
    rows = torch.zeros(matrix.shape[0], dtype=torch.int64, device=values.device)
    columns = torch.zeros(matrix.shape[1], dtype=torch.int64, device=values.device)
    step = max(1, BLOCK // max(1, matrix.shape[1]))
    for start in range(0, matrix.shape[0], step):
        words = canonical_words(matrix[start : start + step].contiguous(), dtype)
        scatter_(words)
        rows[start : start + step] = words.sum(1)
        columns += words.sum(0)
    return rows, columns


def scatter_(words: Tensor) -> Tensor:
    """Scatters int64 words in place as ``core.mixing`` does."""
    words ^= _shifted(words, 32)
    words.mul_(mixing.SCATTER_MULTIPLIER).add_(_signed(mixing.SCATTER_INCREMENT))
    low = words & 0xFFFFFFFF
    words ^= low.mul_(low).bitwise_and_(-(2**32))
    words ^= _shifted(words, 32)
    return words


def _position_keys(indices: Tensor) -> Tensor:
    rows = _keys(indices // KEY_ROW, SEED_ROW).bitwise_or_(1)
    return rows.mul_(_column_keys(indices.device)[indices % KEY_ROW])


def canonical_words(piece: Tensor, dtype: str) -> Tensor:
    """Extends the bits of each element to int64 words in which every NaN looks the same."""
    size = piece.element_size()
    words = piece.view(_BITS[size]).to(torch.int64, copy=True)
    if size in _LOW_BITS:
        words &= _LOW_BITS[size]
    known = NAN_PATTERNS.get(HALVES.get(dtype, dtype))
    if known:
        magnitude, largest, canonical = known
        words.masked_fill_((words & magnitude) > largest, canonical)
    return words


def mix_(words: Tensor) -> Tensor:
    """Mixes int64 words in place as ``core.mixing`` does."""
    for shift, multiplier in mixing.ROUNDS:
        words ^= _shifted(words, shift)
        words *= _signed(multiplier)
    words ^= _shifted(words, mixing.LAST_SHIFT)
    return words


def _shifted(words: Tensor, shift: int) -> Tensor:
    return (words >> shift).bitwise_and_((1 << (64 - shift)) - 1)


def _keys(indices: Tensor, seed: int) -> Tensor:
    return mix_(indices.mul_(_signed(mixing.GOLDEN)).add_(_signed(seed)))


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


def measure_rows(values: Tensor) -> dict[str, Tensor]:
    """Measures each row along the last dimension as ``core.row_statistics.measure_rows`` does."""
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj()).flatten(-2)
    hidden = values.shape[-1] if values.dim() else 1
    rows = values.reshape(values.shape[:-1].numel(), hidden)
    x = rows.to(torch.float64)
    finite = torch.isfinite(x)
    counts = finite.sum(1)
    x = torch.where(finite, x, 0.0)
    magnitude = x.abs()
    peak = magnitude.amax(1) if hidden else magnitude.sum(1)
    scale = torch.where(peak > 0, peak, 1.0)
    scaled = x / scale[:, None]
    signs = _row_signs(hidden, values.device)
    nothing = counts == 0
    return {
        "norm": scaled.square().sum(1).sqrt() * scale,
        "mean": (scaled.sum(1) / counts.clamp(min=1) * scale).masked_fill(nothing, float("nan")),
        "max_abs": peak.masked_fill(nothing, float("nan")),
        "nonfinite": hidden - counts,
        "projection_0": (scaled * signs[0]).sum(1) * scale,
        "projection_1": (scaled * signs[1]).sum(1) * scale,
    }


@functools.lru_cache(maxsize=64)
def _row_signs(hidden: int, device: torch.device) -> Tensor:
    with torch.inference_mode(mode=False):
        signs = sketches.signs(np.arange(hidden))[:, :NUM_PROJECTIONS]
        return torch.from_numpy(np.ascontiguousarray(signs.T)).to(device)
