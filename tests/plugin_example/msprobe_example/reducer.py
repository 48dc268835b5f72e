"""Measure NumPy arrays for the recorder, with msprobe's own reference implementations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msprobe.core import checksums, row_statistics, sketches, statistics
from msprobe.core.records import SKETCH_SIZE
from msprobe.core.sites import Form

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class ArrayCopy:
    """The values of one array as they were."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    data: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class ArrayRows:
    """The row statistics of one array."""

    columns: Mapping[str, Array]


class ArrayReducer:
    """Measures at once: on the host there is nothing to wait for."""

    def __init__(self) -> None:
        self._statistics: list[statistics.Statistics] = []
        self._sketches: list[Array] = []
        self._checksums: list[tuple[int, int]] = []

    def describe(self, tensor: Array) -> Form:
        """Gives format and shape."""
        return Form(checksums.bits_of(tensor)[1], tensor.shape)

    def measure(self, tensor: Array, what: frozenset[str]) -> int:
        """Measures what is wanted and gives the row that holds it; what is not is left blank."""
        blank = np.full(SKETCH_SIZE, np.nan)
        self._statistics.append(statistics.measure(tensor) if "statistics" in what else statistics.Statistics())
        self._sketches.append(sketches.sketch(tensor) if "sketch" in what else blank)
        self._checksums.append(checksums.checksums_of(tensor) if "checksums" in what else (0, 0))
        return len(self._statistics) - 1

    def collect(self) -> Mapping[str, Array]:
        """Gives the columns of what was measured since the last call."""
        columns = statistics.columns(self._statistics)
        columns["sketch"] = np.array(self._sketches).reshape(-1, SKETCH_SIZE)
        pairs = np.array(self._checksums, np.uint64).reshape(-1, 2)
        columns["checksum"], columns["content_sum"] = pairs[:, 0], pairs[:, 1]
        self._statistics, self._sketches, self._checksums = [], [], []
        return columns

    def snapshot(self, tensor: Array) -> ArrayCopy:
        """Copies the values."""
        dtype = checksums.bits_of(tensor)[1]
        return ArrayCopy(dtype, tensor.shape, tensor.nbytes, np.frombuffer(tensor.tobytes(), np.uint8))

    def rows(self, tensor: Array) -> ArrayRows:
        """Measures each row."""
        return ArrayRows(row_statistics.measure_rows(tensor))
