"""Preallocated tables that hold the numbers of one step until they are collected, one for each device."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from msprobe.core.kernels.arrays import COUNTS, FLOATS, SUMS
from msprobe.core.records import SKETCH_SIZE

Array = NDArray[Any]

# Columns of the float64 and of the int64 table, as in the kernels' results: sketch and checksums stand behind.
STATISTICS_FLOATS: Final = slice(0, len(FLOATS))
SKETCH: Final = slice(len(FLOATS), len(FLOATS) + SKETCH_SIZE)
STATISTICS_COUNTS: Final = slice(0, len(COUNTS))
CHECKSUMS: Final = slice(len(COUNTS), len(COUNTS) + len(SUMS))

#: What stands in a row that nothing was written to, as ``core.records.filler``: NaN in floats, and for counts these.
NUM_FLOATS: Final = len(FLOATS) + SKETCH_SIZE
COUNT_FILLERS: Final = (-1,) * len(COUNTS) + (0,) * len(SUMS)

#: Bytes of a row of floats and of one of counts.
_FLOATS_WIDTH: Final = 8 * NUM_FLOATS
_COUNTS_WIDTH: Final = 8 * len(COUNT_FILLERS)

#: Rows by which a table grows.
CHUNK: Final = 4096


class HostTable:
    """Rows of numbers measured on the host."""

    def __init__(self) -> None:
        self._slots: list[int] = []
        self._take(*empty_rows(CHUNK))

    def next_addresses(self) -> tuple[int, int]:
        """Gives where the floats and the counts of the next row lie, for one who writes there and then takes it."""
        row = len(self._slots)
        if row == self._size:
            self._grow()
        return self._floats_at + row * _FLOATS_WIDTH, self._counts_at + row * _COUNTS_WIDTH

    def take_row(self, slot: int) -> None:
        """Makes the next row that of a slot."""
        self._slots.append(slot)

    def new_row(self, slot: int) -> tuple[Array, Array]:
        """Gives the row of a slot, as writable views of its floats and its counts."""
        row = len(self._slots)
        if row == self._size:
            self._grow()
        self._slots.append(slot)
        return self._floats[row], self._counts[row]

    def move_into(self, floats: Array, counts: Array) -> None:
        """Moves all rows to their slots and leaves the table empty."""
        used = len(self._slots)
        floats[self._slots] = self._floats[:used]
        counts[self._slots] = self._counts[:used]
        self._floats[:used] = np.nan
        self._counts[:used] = COUNT_FILLERS
        self._slots.clear()

    def _grow(self) -> None:
        floats, counts = empty_rows(self._size)
        self._take(np.concatenate([self._floats, floats]), np.concatenate([self._counts, counts]))

    def _take(self, floats: Array, counts: Array) -> None:
        self._floats, self._counts, self._size = floats, counts, len(floats)
        self._floats_at, self._counts_at = floats.ctypes.data, counts.ctypes.data


class DeviceTable:
    """Rows of numbers on one device, in chunks that stay where they are while operators write to them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._slots: list[int] = []
        self._chunks: list[tuple[Tensor, Tensor]] = []

    def new_row(self, slot: int) -> tuple[Tensor, Tensor]:
        """Gives the row of a slot, as views of its floats and its counts on the device."""
        chunk, row = divmod(len(self._slots), CHUNK)
        if chunk == len(self._chunks):
            self._chunks.append(self._new_chunk())
        self._slots.append(slot)
        floats, counts = self._chunks[chunk]
        return floats[row], counts[row]

    def move_into(self, floats: Array, counts: Array) -> None:
        """Moves all rows to their slots, one copy for each table and chunk, and leaves the table empty."""
        for start in range(0, len(self._slots), CHUNK):
            slots = self._slots[start : start + CHUNK]
            device_floats, device_counts = self._chunks[start // CHUNK]
            floats[slots] = device_floats[: len(slots)].cpu().numpy()
            counts[slots] = device_counts[: len(slots)].cpu().numpy()
            empty_floats, empty_counts = empty_rows(len(slots))
            device_floats[: len(slots)].copy_(torch.from_numpy(empty_floats))
            device_counts[: len(slots)].copy_(torch.from_numpy(empty_counts))
        self._slots.clear()

    def _new_chunk(self) -> tuple[Tensor, Tensor]:
        # A tensor made in inference mode could not be written to outside of it. Copies from pageable memory are
        # complete when they return, so any stream may write the first row.
        with torch.inference_mode(mode=False):
            floats, counts = empty_rows(CHUNK)
            return torch.from_numpy(floats).to(self._device), torch.from_numpy(counts).to(self._device)


def empty_rows(count: int) -> tuple[Array, Array]:
    """Gives rows of floats and of counts that hold fillers."""
    return np.full((count, NUM_FLOATS), np.nan), np.tile(np.array(COUNT_FILLERS, np.int64), (count, 1))


def columns(floats: Array, counts: Array) -> dict[str, Array]:
    """Names the columns of both tables as ``core.records`` does."""
    named: dict[str, Array] = {name: floats[:, i] for i, name in enumerate(FLOATS)}
    named |= {name: counts[:, i] for i, name in enumerate(COUNTS)}
    named |= {name: counts[:, i].view(np.uint64) for i, name in enumerate(SUMS, len(COUNTS))}
    named["sketch"] = floats[:, SKETCH]
    return {name: np.ascontiguousarray(column) for name, column in named.items()}
