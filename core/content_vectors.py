"""Content sums of each row and each column of a parameter: they recognise weights that were fused, split or turned.

Rows are the entries of the first dimension, columns those of all others together; of one dimension each element is a
row. A sum is that of ``scatter(bits)`` as in the content sum of ``core.checksums``, modulo 2^64: it knows which
values a row holds, not where. So the rows of a fused weight are the rows of its parts, in the fused order; the columns
of a weight split by columns add up to those of the whole; those of a transposed weight have changed roles. Their sum is
the content sum of the whole.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from msprobe.core.checksums import canonical_words
from msprobe.core.dtypes import FORMATS
from msprobe.core.kernels.arrays import FORMATS as KERNEL_FORMATS
from msprobe.core.kernels.arrays import LONG
from msprobe.core.kernels.library import current
from msprobe.core.mixing import scatter_in_place

Array = NDArray[Any]
Vector = NDArray[np.uint64]

#: A tensor with more rows and columns than that has no vectors: 8 MiB.
MOST_SUMS: Final = 2**20

#: Elements worked on at a time by NumPy: words and scratch stay in the second-level cache.
_BLOCK: Final = 16384


def has_vectors(shape: tuple[int, ...], dtype: str) -> bool:
    """Tells whether vectors are defined for a tensor, and of a size worth keeping."""
    known = FORMATS.get(dtype)
    return bool(shape) and known is not None and known.kind != "complex" and sum(matrix_shape(shape)) <= MOST_SUMS


def matrix_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Gives the numbers of rows and columns."""
    return shape[0], math.prod(shape[1:])


def content_vectors(bits: Array, dtype: str) -> tuple[Vector, Vector]:
    """Sums the content of each row and each column.

    Args:
        bits: The elements as unsigned integers of the format's width, of one dimension or more.
        dtype: Canonical name of the format, a real one.
    """
    matrix = np.ascontiguousarray(bits).reshape(matrix_shape(bits.shape))
    found = vectors_of_memory(matrix.ctypes.data, dtype, matrix.shape)
    return _by_blocks(matrix, dtype) if found is None else found


def vectors_of_memory(address: int, dtype: str, shape: tuple[int, ...]) -> tuple[Vector, Vector] | None:
    """Sums a row-major tensor without gaps where it lies; None where only NumPy can."""
    library, form = current(), KERNEL_FORMATS.get(dtype)
    if library is None or form is None or form[1] != 1:
        return None
    rows, columns = matrix_shape(shape)
    sums = np.empty(rows, np.uint64), np.zeros(columns, np.uint64)
    call = library.long_vectors if rows * columns > LONG else library.vectors
    call(address, form[0], rows, columns, sums[0].ctypes.data, sums[1].ctypes.data)
    return sums


def _by_blocks(matrix: Array, dtype: str) -> tuple[Vector, Vector]:
    rows, columns = matrix.shape
    row_sums, column_sums = np.zeros(rows, np.uint64), np.zeros(columns, np.uint64)
    step = max(1, _BLOCK // max(1, columns))
    for start in range(0, rows, step):
        words = canonical_words(matrix[start : start + step], dtype)
        scatter_in_place(words, np.empty_like(words))
        row_sums[start : start + step] = words.sum(axis=1, dtype=np.uint64)
        column_sums += words.sum(axis=0, dtype=np.uint64)
    return row_sums, column_sums
