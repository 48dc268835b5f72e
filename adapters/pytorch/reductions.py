"""The reducer for torch: turns tensors into rows of numbers where they live, and copies them once.

On an accelerator every number is computed by operators enqueued on the current stream and written into a table on that
device; nothing waits until ``collect``. On CPU there is nothing to wait for, so NumPy works on the tensor's own memory.
Neither touches random state, autograd, or what modes and subclasses of the user see (``isolation``).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from msprobe.adapters.pytorch import device_sketches, device_statistics, forms
from msprobe.adapters.pytorch.dtypes import TORCH_DTYPES, dtype_name
from msprobe.adapters.pytorch.isolation import isolated
from msprobe.core.checksums import checksums
from msprobe.core.records import SKETCH_SIZE
from msprobe.core.row_statistics import measure_rows
from msprobe.core.sketches import sketch_blocks
from msprobe.core.statistics import BLOCK, flat_blocks, measure_blocks, real_elements

if TYPE_CHECKING:
    from msprobe.core.sites import Form

Array = NDArray[Any]

#: Columns of the two tables of a device.
FLOATS: Final = ("min", "max", "mean", "mean_abs", "m2", "norm")
COUNTS: Final = ("nan", "pos_inf", "neg_inf", "zero")
SUMS: Final = ("checksum", "content_sum")
_NUM_FLOATS: Final = len(FLOATS) + SKETCH_SIZE
_NUM_COUNTS: Final = len(COUNTS) + len(SUMS)
_SKETCH: Final = slice(len(FLOATS), _NUM_FLOATS)
_SUMS: Final = slice(len(COUNTS), _NUM_COUNTS)

#: Rows by which a table grows.
_CHUNK: Final = 4096

#: Formats that NumPy lacks or computes slowly, and the wider one that holds each of their values exactly.
_WIDENED: Final = {
    TORCH_DTYPES[name]: torch.float32
    for name in ("bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz", "fp8_e8m0")
    if name in TORCH_DTYPES
}
_UNSIGNED: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class TorchReducer:
    """Implements ``core.protocols.Reducer`` for torch tensors on any device.

    Only tensors whose ``describe(...).kind`` is ``dense`` can be measured; of others the recorder writes the status.
    In the columns that ``collect`` gives, what was not asked of a slot is NaN (statistics, sketch) or 0 (counts, sums).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._host = _HostTable()
        self._devices: dict[torch.device, _DeviceTable] = {}
        self._count = 0
        self._pending: list[Snapshot | RowSnapshot] = []

    def describe(self, tensor: Tensor) -> Form:
        """Gives the form of a tensor of any kind."""
        return forms.describe(tensor)

    def measure(self, tensor: Tensor, what: frozenset[str]) -> int:
        """Starts measuring ``statistics``, ``sketch`` and ``checksums``, as asked, and gives the slot."""
        with isolated():
            values = _values(tensor)
            if values.device.type == "cpu":
                return self._measure_on_host(values, what)
            return self._measure_on_device(values, what)

    def collect(self) -> dict[str, Array]:
        """Waits for everything measured since the last call and gives one row for each slot.

        Snapshots and row snapshots taken until now are complete afterwards.
        """
        with self._lock, isolated():
            count, self._count = self._count, 0
            floats = np.full((count, _NUM_FLOATS), np.nan)
            counts = np.zeros((count, _NUM_COUNTS), np.int64)
            for device in self._devices:
                _synchronize(device)
            self._pending.clear()
            self._host.move_into(floats, counts)
            for table in self._devices.values():
                table.move_into(floats, counts)
        columns: dict[str, Array] = {name: floats[:, i] for i, name in enumerate(FLOATS)}
        columns |= {name: counts[:, i] for i, name in enumerate(COUNTS)}
        columns |= {name: counts[:, i].view(np.uint64) for i, name in enumerate(SUMS, len(COUNTS))}
        columns["sketch"] = floats[:, _SKETCH]
        return {name: np.ascontiguousarray(column) for name, column in columns.items()}

    def snapshot(self, tensor: Tensor) -> Snapshot:
        """Copies a tensor's bytes to the host; on an accelerator the copy is complete after the next ``collect``."""
        with isolated():
            values = _values(tensor)
            data, copied = _to_host(_bytes_of(values))
            shot = Snapshot(dtype_name(values.dtype), tuple(values.shape), data)
            if not copied:
                self._pending.append(shot)
            return shot

    def rows(self, tensor: Tensor) -> RowSnapshot:
        """Measures a tensor's rows (``core.row_statistics``); complete after the next ``collect``."""
        with isolated():
            values = _values(tensor)
            if values.device.type == "cpu":
                wide = _widened(values)
                return RowSnapshot({name: torch.from_numpy(c) for name, c in measure_rows(wide.numpy()).items()})
            shot = RowSnapshot({name: _to_host(c)[0] for name, c in device_sketches.measure_rows(values).items()})
            self._pending.append(shot)
            return shot

    def _measure_on_host(self, values: Tensor, what: frozenset[str]) -> int:
        floats = counts = sketched = sums = None
        if values.numel():
            if "statistics" in what:
                s = measure_blocks(_host_blocks(values))
                floats = (s.min, s.max, s.mean, s.mean_abs, s.m2, s.norm)
                counts = (s.nan, s.pos_inf, s.neg_inf, s.zero)
            if "checksums" in what:
                sums = checksums(_host_bits(values), dtype_name(values.dtype))
        if "sketch" in what:
            sketched = sketch_blocks(_host_blocks(values))
        with self._lock:
            slot = self._next_slot()
            self._host.write(slot, floats, counts, sketched, sums)
        return slot

    def _measure_on_device(self, values: Tensor, what: frozenset[str]) -> int:
        with self._lock:
            slot = self._next_slot()
            table = self._devices.get(values.device)
            if table is None:
                table = self._devices[values.device] = _DeviceTable(values.device)
            float_row, count_row = table.new_row(slot)
        if "statistics" in what and values.numel():
            floats, counts = device_statistics.measure(values)
            float_row[: len(FLOATS)].copy_(torch.stack(floats))
            count_row[: len(COUNTS)].copy_(torch.stack(counts))
        if "sketch" in what:
            float_row[_SKETCH].copy_(device_sketches.sketch(values))
        if "checksums" in what:
            count_row[_SUMS].copy_(torch.stack(device_sketches.checksums(values)))
        return slot

    def _next_slot(self) -> int:
        self._count += 1
        return self._count - 1


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The saved bits of one tensor on the host."""

    dtype: str
    shape: tuple[int, ...]
    _data: Tensor

    @property
    def data(self) -> NDArray[np.uint8]:
        """The bytes in row-major order; on an accelerator valid once ``collect`` has returned."""
        array: NDArray[np.uint8] = self._data.numpy()
        return array


@dataclass(frozen=True, slots=True)
class RowSnapshot:
    """Row statistics of one tensor on the host."""

    _columns: Mapping[str, Tensor]

    @property
    def columns(self) -> dict[str, Array]:
        """The columns of ``core.row_statistics``; on an accelerator valid once ``collect`` has returned."""
        return {name: column.numpy() for name, column in self._columns.items()}


class _HostTable:
    """Rows of numbers measured on the host."""

    def __init__(self) -> None:
        self._slots: list[int] = []
        self._floats = np.full((_CHUNK, _NUM_FLOATS), np.nan)
        self._counts = np.zeros((_CHUNK, _NUM_COUNTS), np.int64)

    def write(
        self,
        slot: int,
        floats: tuple[float, ...] | None,
        counts: tuple[int, ...] | None,
        sketched: Array | None,
        sums: tuple[int, int] | None,
    ) -> None:
        row = len(self._slots)
        if row == len(self._floats):
            self._floats = np.concatenate([self._floats, np.full_like(self._floats, np.nan)])
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
        self._slots.append(slot)
        if floats is not None and counts is not None:
            self._floats[row, : len(FLOATS)] = floats
            self._counts[row, : len(COUNTS)] = counts
        if sketched is not None:
            self._floats[row, _SKETCH] = sketched
        if sums is not None:
            self._counts[row, _SUMS] = np.array(sums, np.uint64).view(np.int64)

    def move_into(self, floats: Array, counts: Array) -> None:
        used = len(self._slots)
        floats[self._slots] = self._floats[:used]
        counts[self._slots] = self._counts[:used]
        self._floats[:used] = np.nan
        self._counts[:used] = 0
        self._slots.clear()


class _DeviceTable:
    """Rows of numbers on one device, in chunks that stay where they are."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._slots: list[int] = []
        self._chunks: list[tuple[Tensor, Tensor]] = []

    def new_row(self, slot: int) -> tuple[Tensor, Tensor]:
        chunk, row = divmod(len(self._slots), _CHUNK)
        if chunk == len(self._chunks):
            self._chunks.append(self._new_chunk())
        self._slots.append(slot)
        floats, counts = self._chunks[chunk]
        return floats[row], counts[row]

    def _new_chunk(self) -> tuple[Tensor, Tensor]:
        # A tensor made in inference mode could not be written to outside of it.
        with torch.inference_mode(mode=False):
            floats = torch.full((_CHUNK, _NUM_FLOATS), float("nan"), dtype=torch.float64, device=self._device)
            counts = torch.zeros((_CHUNK, _NUM_COUNTS), dtype=torch.int64, device=self._device)
        _synchronize(self._device)  # other streams may write rows first
        return floats, counts

    def move_into(self, floats: Array, counts: Array) -> None:
        for start in range(0, len(self._slots), _CHUNK):
            slots = self._slots[start : start + _CHUNK]
            device_floats, device_counts = self._chunks[start // _CHUNK]
            floats[slots] = device_floats[: len(slots)].cpu().numpy()
            counts[slots] = device_counts[: len(slots)].cpu().numpy()
            device_floats.fill_(float("nan"))
            device_counts.zero_()
        if self._slots:
            _synchronize(self._device)
        self._slots.clear()


def _values(tensor: Tensor) -> Tensor:
    values = forms.values_of(tensor)
    if values is None:
        raise TypeError(f"a tensor of kind {forms.describe(tensor).kind!r} has no values to measure")
    return values.detach()


def _host_blocks(values: Tensor) -> Iterator[Array]:
    """Gives the real elements in blocks as NumPy arrays, widened where NumPy lacks the format."""
    if values.dtype in _WIDENED or values.dtype is torch.complex32:
        for block in device_statistics.real_blocks(values, BLOCK):
            yield block.to(torch.float32).numpy()
    else:
        yield from flat_blocks(real_elements(values.resolve_conj().resolve_neg().numpy()))


def _host_bits(values: Tensor) -> Array:
    """Views a host tensor's elements as integers of their width; complex ones as pairs."""
    real = _resolved(values)
    return np.asarray(real.view(_UNSIGNED[real.element_size()]).numpy()).view(f"u{real.element_size()}")


def _resolved(values: Tensor) -> Tensor:
    """Writes out lazy conjugation and negation, and views complex numbers as pairs."""
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    return values.resolve_neg()


def _widened(values: Tensor) -> Tensor:
    if values.dtype is torch.complex32:
        return values.to(torch.complex64).resolve_conj()
    return values.to(_WIDENED.get(values.dtype, values.dtype)).resolve_conj().resolve_neg()


def _bytes_of(values: Tensor) -> Tensor:
    return _resolved(values).contiguous().reshape(-1).view(torch.uint8)


def _to_host(source: Tensor) -> tuple[Tensor, bool]:
    """Copies to the host; tells whether the copy is complete already."""
    if source.device.type == "cpu":
        return source.clone(), True
    pinned = source.device.type == "cuda"
    host = torch.empty(source.shape, dtype=source.dtype, pin_memory=pinned)
    host.copy_(source, non_blocking=pinned)
    return host, not pinned


def _synchronize(device: torch.device) -> None:
    module = getattr(torch, device.type, None)
    synchronize = getattr(module, "synchronize", None)
    if synchronize is not None:
        synchronize(device)
