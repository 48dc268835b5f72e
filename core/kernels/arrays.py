"""Calls the kernels on memory, with as little as possible around each call.

Results lie as the rows of a slot table do: ``FLOATS`` then the sketch, ``COUNTS`` then the checksums. They are the
calling thread's own and hold until its next call; what was not asked for holds anything.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from msprobe.core.kernels.library import current
from msprobe.core.records import SKETCH_SIZE

Array = NDArray[Any]
Result = tuple[NDArray[np.float64], NDArray[np.int64]]

#: Order of the numbers of a result.
FLOATS: Final = ("min", "max", "mean", "mean_abs", "m2", "norm")
COUNTS: Final = ("nan", "pos_inf", "neg_inf", "zero")
SUMS: Final = ("checksum", "content_sum")

#: What can be asked, added up.
STATISTICS: Final = 1
SKETCH: Final = 2
CHECKSUMS: Final = 4

#: As ``enum format`` of source/kernels.h.
_REAL: Final = (
    *("fp64", "fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz", "fp8_e8m0"),
    *("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
)
_OF_OTHERS: Final = {
    "bool": ("uint8", 1),
    "complex32": ("fp16", 2),
    "complex64": ("fp32", 2),
    "complex128": ("fp64", 2),
}
#: Canonical name -> code of the format in C, and how many real elements are one element.
FORMATS: Final[dict[str, tuple[int, int]]] = {
    **{name: (code, 1) for code, name in enumerate(_REAL)},
    **{name: (_REAL.index(real), size) for name, (real, size) in _OF_OTHERS.items()},
}
_NAMES: Final = {"f8": "fp64", "f4": "fp32", "f2": "fp16", "c8": "complex64", "c16": "complex128", "?": "bool"}
_OF_DTYPE: Final = {
    np.dtype(name): FORMATS[canonical]
    for name, canonical in (*_NAMES.items(), *((name, name) for name in _REAL if "int" in name))
}

#: Bytes that take long enough to let other threads run meanwhile.
LONG: Final = 2**18
MOST_DIMENSIONS: Final = 63


class _Results(threading.local):
    """Memory for one result, and its address."""

    def __init__(self) -> None:
        self.result: Result = (np.empty(len(FLOATS) + SKETCH_SIZE), np.empty(len(COUNTS) + len(SUMS), np.int64))
        self.addresses: tuple[int, int] = (self.result[0].ctypes.data, self.result[1].ctypes.data)


_results = _Results()


#: First real elements of the runs that a part of a tensor consists of, contiguous, and the length of each (core.runs).
RealRuns = tuple[NDArray[np.int64], int]


class Place(NamedTuple):
    """How a tensor lies in memory, and where in the whole tensor it is a part of.

    ``strides`` are steps between elements, in elements; None for a tensor in row-major order without gaps. ``offset``
    is the index of the first real element in the whole tensor; ``runs``, in its place, are for a part of several runs.
    """

    shape: Sequence[int]
    strides: Sequence[int] | None = None
    offset: int = 0
    runs: RealRuns | None = None


def measure_memory(address: int, form: tuple[int, int], what: int, place: Place) -> Result | None:
    """Measures a tensor where it lies; None where the kernels cannot.

    Args:
        address: Of the first element.
        form: An entry of ``FORMATS``.
        what: ``STATISTICS``, ``SKETCH`` and ``CHECKSUMS`` as asked, added up.
        place: How it lies, and where in the whole tensor.
    """
    library = current()
    if library is None or len(place.shape) > MOST_DIMENSIONS:
        return None
    code, pair = form
    count = math.prod(place.shape) * pair
    at = _results.addresses
    is_long = count > LONG
    if place.runs is not None:
        starts, length = place.runs
        layout = _layout(place, pair, count)
        measure = library.long_measure_runs if is_long else library.measure_runs
        failed = measure(address, code, what, layout.shape[1], layout.ctypes.data, starts.ctypes.data, length, *at)
    elif place.strides is None or not place.shape:
        run = library.long_measure_run if is_long else library.measure_run
        failed = run(address, code, what, count, place.offset, *at)
    else:
        layout = _layout(place, pair, count)
        measure = library.long_measure if is_long else library.measure
        failed = measure(address, code, what, layout.shape[1], layout.ctypes.data, place.offset, *at)
    return None if failed else _results.result


def _layout(place: Place, pair: int, count: int) -> NDArray[np.int64]:
    """Gives extents and strides of real elements."""
    if place.strides is None or not place.shape:
        return np.array(((count,), (1,)), np.int64)
    if pair == 2:
        return np.array(((*place.shape, 2), (*(2 * stride for stride in place.strides), 1)), np.int64)
    return np.array((place.shape, place.strides), np.int64)


def form_of(values: Array) -> tuple[int, int] | None:
    """Gives the entry of ``FORMATS`` of an array that lies in row-major order without gaps, None for others."""
    return _OF_DTYPE.get(values.dtype) if values.flags.c_contiguous and values.flags.aligned else None


def measure_array(
    values: Array,
    what: int,
    *,
    form: tuple[int, int] | None = None,
    offset: int = 0,
    runs: RealRuns | None = None,
) -> Result | None:
    """Measures an array; None without a library, and for other dtypes or byte orders and unaligned memory."""
    if form is None:
        form = _OF_DTYPE.get(values.dtype)
    if form is None or current() is None or not values.flags.aligned:
        return None
    address = values.__array_interface__["data"][0]
    if values.flags.c_contiguous:
        return measure_memory(address, form, what, Place(values.shape, None, offset, runs))
    size = values.itemsize
    if any(stride % size for stride in values.strides):
        return None
    strides = [stride // size for stride in values.strides]
    return measure_memory(address, form, what, Place(values.shape, strides, offset, runs))
