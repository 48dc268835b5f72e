"""The reducer for torch: turns tensors into rows of numbers where they live, and copies them once.

On an accelerator every number is computed by operators enqueued on the current stream and written into a table on that
device; nothing waits until ``collect``. On CPU there is nothing to wait for, so the C kernels, or NumPy where there are
none, work on the tensor's own memory. Neither touches random state, autograd, or what modes and subclasses of the user
see (``isolation``).
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from msprobe.adapters.pytorch import device_kernels, device_sketches, device_statistics, forms, host_arrays
from msprobe.adapters.pytorch.dtensors import local_of
from msprobe.adapters.pytorch.dtypes import dtype_name
from msprobe.adapters.pytorch.isolation import isolated
from msprobe.adapters.pytorch.placed import Placed, plain_of, runs_of
from msprobe.adapters.pytorch.slot_tables import (
    CHECKSUMS,
    SKETCH,
    STATISTICS_COUNTS,
    STATISTICS_FLOATS,
    DeviceTable,
    HostTable,
    columns,
    empty_rows,
)
from msprobe.core.checksums import checksums
from msprobe.core.kernels import arrays
from msprobe.core.kernels.library import current
from msprobe.core.records import VECTORS
from msprobe.core.recycling import Recycler
from msprobe.core.row_statistics import measure_rows
from msprobe.core.sketches import sketch, sketch_blocks
from msprobe.core.statistics import measure_blocks

if TYPE_CHECKING:
    from msprobe.core.runs import Runs
    from msprobe.core.sites import Form

Array = NDArray[Any]


class TorchReducer:
    """Implements ``core.protocols.Reducer`` for torch tensors on any device.

    Only tensors whose ``describe(...).kind`` is ``dense`` can be measured; of others the recorder writes the status.
    In the columns that ``collect`` gives, what was not asked of a slot holds ``core.records.filler``.
    """

    def __init__(
        self, host_devices: frozenset[str] = frozenset({"cpu"}), kernel_devices: frozenset[str] = frozenset({"cuda"})
    ) -> None:
        """Makes an empty reducer.

        Tensors on devices other than ``host_devices`` are measured on their device: on ``kernel_devices`` by the Triton
        kernel where there is Triton and it can read the tensor, else by torch operators.
        """
        self._host_devices = host_devices
        self._kernel_devices = kernel_devices
        self._measures_plain = "cpu" in host_devices
        self._lock = threading.Lock()
        self._host = HostTable()
        self._devices: dict[torch.device, DeviceTable] = {}
        self._count = 0
        self._memory = Recycler()

    def describe(self, tensor: Tensor | Placed) -> Form:
        """Gives the form of a tensor of any kind."""
        with torch._C.DisableTorchFunction():
            part = local_of(tensor)
            if isinstance(part, Placed):
                return forms.describe(part, keyed_globally=True)
            return forms.describe(part)

    def measure_plain(self, tensor: Tensor, what: frozenset[str]) -> tuple[Form, int] | None:
        """Describes and measures in one go a tensor that the kernels can read as it lies; None for any other.

        This is the way of nearly all tensors on CPU: one call of a kernel, which writes into the table itself.
        """
        library = current() if self._measures_plain else None
        plain = host_arrays.plain_form(tensor) if library is not None else None
        if library is None or plain is None:
            return None
        form, code, count = plain
        measure = library.long_measure_run if count > arrays.LONG else library.measure_run
        with self._lock:
            floats, counts = self._host.next_addresses()
            if measure(tensor.data_ptr(), code, _asked(what)[0], count, 0, floats, counts):
                return None
            slot = self._next_slot()
            self._host.take_row(slot)
        return form, slot

    def measure(self, tensor: Tensor | Placed, what: frozenset[str]) -> int:
        """Starts measuring ``statistics``, ``sketch`` and ``checksums``, as asked, and gives the slot."""
        with isolated():
            part = local_of(tensor)
            runs = runs_of(part.layout) if isinstance(part, Placed) else None
            values = _values(plain_of(part))
            if values.device.type in self._host_devices:
                return self._measure_on_host(values, what, runs)
            return self._measure_on_device(values, what, runs)

    def collect(self) -> dict[str, Array]:
        """Waits for everything measured since the last call and gives one row for each slot.

        Snapshots and row snapshots taken until now are complete afterwards.
        """
        with self._lock, isolated():
            count, self._count = self._count, 0
            floats, counts = empty_rows(count)
            self._host.move_into(floats, counts)
            for device, table in self._devices.items():
                _synchronize(device)
                table.move_into(floats, counts)
        return columns(floats, counts)

    def snapshot(self, tensor: Tensor | Placed) -> Snapshot:
        """Copies a tensor's bytes to the host; on an accelerator the copy is complete after the next ``collect``."""
        if not isinstance(tensor, Placed):
            plain = host_arrays.plain_form(tensor)
            if plain is not None:
                data = self._copy_memory(tensor.data_ptr(), tensor.numel() * tensor.element_size())
                return Snapshot(plain.form.dtype, plain.form.shape, data)
        with isolated():
            values = _values(tensor)
            real = host_arrays.resolved(values)
            if real.is_cpu:
                data = self._copy_strided(real)
            else:
                data = self._to_host(real.contiguous().reshape(-1).view(torch.uint8)).numpy()
            return Snapshot(dtype_name(values.dtype), tuple(values.shape), data)

    def _copy_memory(self, address: int, nbytes: int) -> NDArray[np.uint8]:
        with self._lock:
            data = self._memory.take(nbytes)
        ctypes.memmove(data.__array_interface__["data"][0], address, nbytes)
        return data

    def _copy_strided(self, real: Tensor) -> NDArray[np.uint8]:
        with self._lock:
            data = self._memory.take(real.numel() * real.element_size())
        torch.from_numpy(data).view(real.dtype).view(real.shape).copy_(real)
        return data

    def rows(self, tensor: Tensor | Placed) -> RowSnapshot:
        """Measures a tensor's rows (``core.row_statistics``); complete after the next ``collect``."""
        with isolated():
            values = _values(tensor)
            if values.device.type in self._host_devices:
                return RowSnapshot(measure_rows(host_arrays.widened(values).numpy()))
            measured = device_sketches.measure_rows(values)
            return RowSnapshot({name: self._to_host(column).numpy() for name, column in measured.items()})

    def vectors(self, tensor: Tensor | Placed) -> RowSnapshot:
        """Sums the content of rows and columns (``core.content_vectors``); complete after the next ``collect``."""
        with isolated():
            values = _values(tensor)
            if values.device.type in self._host_devices:
                return RowSnapshot(dict(zip(VECTORS, host_arrays.content_vectors(values), strict=True)))
            measured = device_sketches.content_vectors(values)
            sums = (self._to_host(vector).numpy().view(np.uint64) for vector in measured)
            return RowSnapshot(dict(zip(VECTORS, sums, strict=True)))

    def _measure_on_host(self, values: Tensor, what: frozenset[str], runs: Runs | None) -> int:
        code, places = _asked(what)
        result = host_arrays.measure(values, code, runs) or _measure_by_numpy(values, what, runs)
        with self._lock:
            slot = self._next_slot()
            rows = self._host.new_row(slot)
            for i, place in places:
                rows[i][place] = result[i][place]
        return slot

    def _measure_on_device(self, values: Tensor, what: frozenset[str], runs: Runs | None) -> int:
        with self._lock:
            slot = self._next_slot()
            float_row, count_row = self._table(values.device).new_row(slot)
        if values.device.type in self._kernel_devices:
            measured = device_kernels.measure(values, what, runs)
            if measured is not None:
                for i, place in _asked(what)[1]:
                    (float_row, count_row)[i][place].copy_(measured[i][place])
                return slot
        if "statistics" in what:
            floats, counts = device_statistics.measure(values)
            float_row[STATISTICS_FLOATS].copy_(torch.stack(floats))
            count_row[STATISTICS_COUNTS].copy_(torch.stack(counts))
        if "sketch" in what:
            float_row[SKETCH].copy_(device_sketches.sketch(values, runs))
        if "checksums" in what:
            count_row[CHECKSUMS].copy_(torch.stack(device_sketches.checksums(values, runs)))
        return slot

    def _next_slot(self) -> int:
        self._count += 1
        return self._count - 1

    def _table(self, device: torch.device) -> DeviceTable:
        table = self._devices.get(device)
        if table is None:
            table = self._devices[device] = DeviceTable(device)
        return table

    def _to_host(self, source: Tensor) -> Tensor:
        """Copies to the host in stream order."""
        if source.is_cpu:
            return source.clone()
        with self._lock:
            self._table(source.device)  # collect waits for devices that have a table
        pinned = source.is_cuda
        host = torch.empty(source.shape, dtype=source.dtype, pin_memory=pinned)
        return host.copy_(source, non_blocking=pinned)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The saved bits of one tensor on the host."""

    dtype: str
    shape: tuple[int, ...]
    #: The bytes in row-major order; on an accelerator valid once ``collect`` has returned.
    data: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class RowSnapshot:
    """Row statistics of one tensor on the host; on an accelerator valid once ``collect`` has returned."""

    columns: Mapping[str, Array]


#: What can be asked: where its numbers stand in a row of floats (0) and in one of counts (1), and its code in C.
_PLACES: Final = {
    "statistics": ((0, STATISTICS_FLOATS), (1, STATISTICS_COUNTS)),
    "sketch": ((0, SKETCH),),
    "checksums": ((1, CHECKSUMS),),
}
_CODES: Final = {"statistics": arrays.STATISTICS, "sketch": arrays.SKETCH, "checksums": arrays.CHECKSUMS}


@functools.cache
def _asked(what: frozenset[str]) -> tuple[int, list[tuple[int, slice]]]:
    """Gives what is asked in C, and the places of its numbers, joined where they lie side by side."""
    names = [name for name in _CODES if name in what]
    places: list[tuple[int, slice]] = []
    for row in (0, 1):
        for place in (place for name in names for i, place in _PLACES[name] if i == row):
            joins = bool(places) and places[-1][0] == row and places[-1][1].stop == place.start
            start = places.pop()[1].start if joins else place.start
            places.append((row, slice(start, place.stop)))
    return sum(_CODES[name] for name in names), places


def _measure_by_numpy(values: Tensor, what: frozenset[str], runs: Runs | None) -> tuple[Array, Array]:
    """Gives rows of floats and of counts, in the order of the kernels' results."""
    floats, counts = (rows[0] for rows in empty_rows(1))
    if "statistics" in what:
        s = measure_blocks(host_arrays.blocks(values))
        floats[STATISTICS_FLOATS] = (s.min, s.max, s.mean, s.mean_abs, s.m2, s.norm)
        counts[STATISTICS_COUNTS] = (s.nan, s.pos_inf, s.neg_inf, s.zero)
    if "sketch" in what:
        if runs is None:
            floats[SKETCH] = sketch_blocks(host_arrays.blocks(values))
        else:
            floats[SKETCH] = sketch(host_arrays.widened(values).numpy(), runs=runs)
    if "checksums" in what:
        sums = checksums(host_arrays.bits(values), dtype_name(values.dtype), runs=runs)
        counts[CHECKSUMS] = np.array(sums, np.uint64).view(np.int64)
    return floats, counts


def _values(tensor: Tensor | Placed) -> Tensor:
    values = forms.values_of(plain_of(tensor))
    if values is None:
        raise TypeError(f"a tensor of kind {forms.describe(tensor).kind!r} has no values to measure")
    return values.detach()


def _synchronize(device: torch.device) -> None:
    synchronize = getattr(getattr(torch, device.type, None), "synchronize", None)
    if synchronize is not None:
        synchronize(device)
