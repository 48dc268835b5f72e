"""Measure NumPy arrays for the recorder, with msprobe's own reference implementations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msprobe.core import checksums, row_statistics, sketches, statistics
from msprobe.core.records import SKETCH_SIZE
from msprobe.core.sites import Form

Array = NDArray[Any]


class ArrayCopy:
    """The values of one array as they were."""

    def __init__(self, values: Array) -> None:
        self.dtype = checksums.bits_of(values)[1]
        self.shape = values.shape
        self.nbytes = values.nbytes
        self._bytes = np.frombuffer(values.tobytes(), np.uint8)

    def bits(self) -> NDArray[np.uint8]:
        """Gives the exact bytes in row-major order."""
        return self._bytes


class ArrayReducer:
    """Measures at once: on the host there is nothing to wait for."""

    def __init__(self) -> None:
        self._statistics: list[statistics.Statistics] = []
        self._sketches: list[Array] = []
        self._checksums: list[tuple[int, int]] = []
        self._rows: dict[int, Mapping[str, Array]] = {}
        self._collected_rows: dict[int, Mapping[str, Array]] = {}

    def describe(self, tensor: Array) -> Form:
        """Gives format and shape."""
        return Form(checksums.bits_of(tensor)[1], tensor.shape)

    def measure(self, tensor: Array, what: frozenset[str]) -> int:
        """Measures what is wanted and gives the slot; what is not is left blank."""
        slot = len(self._statistics)
        blank = np.full(SKETCH_SIZE, np.nan)
        self._statistics.append(statistics.measure(tensor) if "statistics" in what else statistics.Statistics())
        self._sketches.append(sketches.sketch(tensor) if "sketch" in what else blank)
        self._checksums.append(checksums.checksums_of(tensor) if "checksums" in what else (0, 0))
        if "rows" in what:
            self._rows[slot] = row_statistics.measure_rows(tensor)
        return slot

    def collect(self) -> Mapping[str, Array]:
        """Gives the columns of what was measured since the last call."""
        columns = statistics.columns(self._statistics)
        columns["sketch"] = np.array(self._sketches).reshape(-1, SKETCH_SIZE)
        pairs = np.array(self._checksums, np.uint64).reshape(-1, 2)
        columns["checksum"], columns["content_sum"] = pairs[:, 0], pairs[:, 1]
        self._collected_rows, self._rows = self._rows, {}
        self._statistics, self._sketches, self._checksums = [], [], []
        return columns

    def collect_rows(self) -> Mapping[int, Mapping[str, Array]]:
        """Gives the row statistics of what the last ``collect`` gave, by slot."""
        return self._collected_rows

    def snapshot(self, tensor: Array) -> ArrayCopy:
        """Copies the values."""
        return ArrayCopy(tensor)
