"""Checksums that prove two tensors equal bit for bit, however each was cut into shards.

``content_sum`` is the sum modulo 2^64 of  scatter(bits of the element)  over all elements: it knows which values there
are, not where. ``scatter`` (``core.mixing``) is a non-linear bijection of words.

``positional`` is the sum modulo 2^64 of  scatter(bits of the element) * key(index in the whole tensor).  Keys are odd,
so any change of one element changes the sum; unlike a CRC the sum does not depend on the order in which elements are
visited, so the checksum of a whole is the sum over its shards. Without ``scatter`` flipping the top bits of two
elements, or negating an even number of them, would cancel. This is multilinear hashing (Carter, Wegman, Universal
Classes of Hash Functions, 1979) of scattered words: changes of several elements cancel about once in 2^64.

key(i) = column key(i mod 256) * row key(i div 256), each a ``core.mixing`` key made odd.

Before that NaN is made canonical (one bit pattern for all payloads and signs); -0 keeps its sign and differs from 0.
Bits are zero-extended to 64; a complex number is two elements, real part first.
"""

from __future__ import annotations

import functools
import threading
import zlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from msprobe.core.dtypes import FORMATS
from msprobe.core.kernels.arrays import CHECKSUMS, measure_array
from msprobe.core.kernels.arrays import FORMATS as KERNEL_FORMATS
from msprobe.core.mixing import Words, keys, scatter_in_place
from msprobe.core.runs import Runs, indices_in_blocks, real_runs
from msprobe.core.statistics import flat_blocks

Array = NDArray[Any]

#: Elements of one row of position keys.
KEY_ROW: Final = 256
#: Seeds of the column and the row keys: the fractional parts of sqrt 7 and sqrt 13.
SEED_COLUMN: Final = 0xA54FF53A5F1D36F1
SEED_ROW: Final = 0x9B05688C2B3E6C1F

#: Bit patterns of NaN: format -> (mask of the magnitude bits, largest magnitude that is not NaN, canonical NaN).
NAN_PATTERNS: Final[dict[str, tuple[int, int, int]]] = {
    "fp64": (0x7FFFFFFFFFFFFFFF, 0x7FF0000000000000, 0x7FF8000000000000),
    "fp32": (0x7FFFFFFF, 0x7F800000, 0x7FC00000),
    "fp16": (0x7FFF, 0x7C00, 0x7E00),
    "bf16": (0x7FFF, 0x7F80, 0x7FC0),
    "fp8_e4m3": (0x7F, 0x7E, 0x7F),
    "fp8_e5m2": (0x7F, 0x7C, 0x7E),
}
#: Formats with two halves, and the format of a half.
HALVES: Final = {"complex32": "fp16", "complex64": "fp32", "complex128": "fp64"}

_NAMES: Final = {
    np.dtype(name): canonical
    for name, canonical in (("f8", "fp64"), ("f4", "fp32"), ("f2", "fp16"), ("c8", "complex64"), ("c16", "complex128"))
}
_BLOCK: Final = 16384


def checksums(bits: Array, dtype: str, *, offset: int = 0, runs: Runs | None = None) -> tuple[int, int]:
    """Gives the positional checksum and the content sum.

    Args:
        bits: The elements as unsigned integers of the format's width (of half of it, in pairs, for complex).
        dtype: Canonical name of the format.
        offset: Index of the first real element in the whole tensor, for a shard that is one contiguous run of it.
        runs: Where the elements stand in the whole tensor, for any other shard (``core.runs``).

    Raises:
        ValueError: The runs hold another number of elements.
    """
    real = HALVES.get(dtype, dtype)
    pair = 2 if dtype in HALVES else 1
    where = None if runs is None else real_runs(runs, bits.size // pair, pair)
    if real in KERNEL_FORMATS and bits.itemsize * 8 == FORMATS[real].bits:
        measured = measure_array(bits, CHECKSUMS, form=KERNEL_FORMATS[real], offset=offset, runs=where)
        if measured is not None:
            positional, content = measured[1][-2:].tolist()
            return positional % 2**64, content % 2**64
    positional = content = 0
    for block, factors in _blocks_and_keys(bits, offset, where):
        words, scratch = (array[: block.size] for array in _scratch.words)
        _canonical_words_into(words, block, dtype)
        scatter_in_place(words, scratch)
        content += int(words.sum(dtype=np.uint64))
        np.multiply(words, factors, out=words)
        positional += int(words.sum(dtype=np.uint64))
    return positional % 2**64, content % 2**64


def checksums_of(values: Array, *, offset: int = 0, runs: Runs | None = None) -> tuple[int, int]:
    """Gives the checksums of an array of a dtype that NumPy has; see ``checksums``."""
    bits, dtype = bits_of(values)
    return checksums(bits, dtype, offset=offset, runs=runs)


def crc32(data: Array) -> str:
    """Gives the CRC-32 of raw bytes in row-major order as eight hexadecimal digits, as the peer's dumps carry it."""
    return f"{zlib.crc32(np.ascontiguousarray(data).data):08x}"


def bits_of(values: Array) -> tuple[Array, str]:
    """Views an array as unsigned integers and names its format; complex numbers become pairs along a new last axis."""
    dtype = _NAMES.get(values.dtype)
    if dtype is None and values.dtype.kind in "iub":
        dtype = values.dtype.name
    if dtype is None or dtype not in FORMATS:
        raise ValueError(f"no checksum is defined for dtype {values.dtype}")
    if dtype in HALVES:
        values = np.stack([values.real, values.imag], axis=-1)
    unsigned = values.view(f"u{values.dtype.itemsize}")
    return unsigned, dtype


def canonical_words(bits: Array, dtype: str) -> Words:
    """Extends bits to 64-bit words in which every NaN looks the same."""
    words = np.empty(bits.shape, np.uint64)
    _canonical_words_into(words, bits, dtype)
    return words


def _canonical_words_into(words: Words, bits: Array, dtype: str) -> None:
    np.copyto(words, bits)
    known = NAN_PATTERNS.get(HALVES.get(dtype, dtype))
    if known:
        magnitude, largest, canonical = (bits.dtype.type(pattern) for pattern in known)
        is_nan = (bits & magnitude) > largest
        if is_nan.any():
            words[is_nan] = canonical


def position_keys(indices: Words) -> Words:
    """Gives the key of each index in the whole tensor."""
    one, column = np.uint64(1), np.uint64(KEY_ROW - 1)
    return (keys(indices & column, SEED_COLUMN) | one) * (keys(indices // np.uint64(KEY_ROW), SEED_ROW) | one)


@functools.lru_cache(maxsize=128)
def _block_keys(first: int) -> Words:
    """The keys of one block; kept, because the tensors of a model share their indices."""
    one, rows = np.uint64(1), _BLOCK // KEY_ROW
    columns = keys(np.arange(KEY_ROW, dtype=np.uint64), SEED_COLUMN) | one
    of_rows = keys(np.arange(first // KEY_ROW, first // KEY_ROW + rows, dtype=np.uint64), SEED_ROW) | one
    return (of_rows[:, None] * columns).reshape(-1)


class _Scratch(threading.local):
    """Memory that each thread reuses for every block."""

    def __init__(self) -> None:
        self.words = tuple(np.empty(_BLOCK, np.uint64) for _ in range(2))


_scratch = _Scratch()


def _blocks_and_keys(
    bits: Array, offset: int, where: tuple[NDArray[np.int64], int] | None
) -> Iterator[tuple[Array, Words]]:
    """Gives blocks of elements with their keys."""
    if where is None:
        position = offset
        for block in flat_blocks(bits, _BLOCK):
            yield block, _run_keys(position, block.size)
            position += block.size
        return
    flat, done = np.ascontiguousarray(bits).reshape(-1), 0
    for indices in indices_in_blocks(*where, _BLOCK):
        yield flat[done : done + indices.size], position_keys(indices)
        done += indices.size


def _run_keys(position: int, count: int) -> Words:
    start = position % _BLOCK
    if start + count <= _BLOCK:
        return _block_keys(position - start)[start : start + count]
    return position_keys(np.arange(position, position + count, dtype=np.uint64))
