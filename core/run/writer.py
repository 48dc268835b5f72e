"""Writes a run from a training process without ever standing in its way.

A thread of its own does all work on files. Two things make ``submit`` wait, each only while that thread gets on:
* An earlier step is not committed yet: so a killed process loses one completed step at most. After ``LAG`` seconds it
  goes on all the same.
* The queue holds ``queue_bytes``. After ``PATIENCE`` seconds detail is dropped, in this order until the rest fits:
  saved tensors, row statistics, records. Catalogue, facts and events are small and always kept. A drop is an event.

When writing fails (disk full, directory deleted), training goes on, ``failure`` says why, and one warning is given.
Each later batch tries again; once that works, an event "gap" tells what is missing. Nothing here raises into training.
"""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from msprobe.core.records import HAS
from msprobe.core.run.batch import (
    Batch,
    Event,
    Fact,
    RankInfo,
    RunHeader,
    SavedRows,
    SavedTensor,
    SiteRow,
)
from msprobe.core.run.segment_writer import SegmentWriter

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "LAG",
    "PATIENCE",
    "Batch",
    "Event",
    "Fact",
    "RankInfo",
    "RunHeader",
    "RunWriter",
    "SavedRows",
    "SavedTensor",
    "SiteRow",
]

#: Seconds that ``RunWriter.submit`` may wait for room in the queue, and for earlier steps to be committed.
PATIENCE = 10.0
LAG = 2.0
#: Seconds that closing waits for the queue to be written.
_CLOSING_PATIENCE = 300.0
_SLOW = "the disk is slower than the recording"


class Watch(Protocol):
    """Looks at batches on their way to the disk."""

    def take(self, batch: Batch) -> list[Event]: ...

    def close(self) -> list[Event]: ...


class RunWriter:
    """Writes what one process records of one rank, as a new segment of the run at ``path``.

    Raises:
        RunError: ``path`` holds something that is no run, or a newer version's run. Nothing was written then.
    """

    def __init__(  # noqa: PLR0913 -- what a run is, and how patient its writer
        self,
        path: Path | str,
        *,
        rank: RankInfo,
        header: RunHeader,
        what: frozenset[str],
        queue_bytes: int = 256 * 2**20,
        patience: float = PATIENCE,
        watch: Watch | None = None,
    ) -> None:
        self.path = Path(path).absolute()  # the program may change its directory while it is recorded
        self.rank = rank
        self.what = what
        #: Why nothing is written at the moment; None while all is well.
        self.failure: str | None = None
        self._segment: SegmentWriter | None = None
        self._warned = False
        self._process = os.getpid()
        #: Looks at every batch in the writer's thread and gives events (``core.alerts``).
        self._watch = watch
        self._losses = _Losses()
        self._queue = _Queue(queue_bytes, patience)
        try:
            self._segment = SegmentWriter(self.path, rank=rank, header=header, what=what)
        except OSError as error:
            self.failure = f"{self.path}: cannot be written: {error.strerror or error}"
        self._thread = threading.Thread(target=self._work, name="msprobe-writer", daemon=True)
        self._thread.start()
        atexit.register(self.close)
        self._warn()
        if self._segment is not None and self._segment.number > 1:
            _say(
                f"msprobe: {self.path} holds a recording of rank {rank.rank} already; this one is added to it, as a "
                "restart of the same job. If it is another job, record it into another directory."
            )

    def submit(self, batch: Batch) -> None:
        """Hands over a batch. Waits ``LAG`` and ``patience`` seconds at most, see above; never raises.

        The batch and its arrays must not be changed afterwards. In a forked child nothing is written.
        """
        if os.getpid() != self._process:
            return
        self._queue.put(batch, hopeless=lambda: self.failure is not None)
        self._warn()

    def flush(self, timeout: float | None = None) -> bool:
        """Waits until everything submitted is committed, and tells whether it is."""
        if os.getpid() != self._process:
            return False
        done = self._queue.wait_until_empty(timeout)
        self._warn()
        return done and self.failure is None

    def close(self) -> None:
        """Writes what is queued and ends the segment; later submits are ignored."""
        if os.getpid() != self._process or self._queue.closed:
            return
        atexit.unregister(self.close)
        self._queue.close()
        self._thread.join(_CLOSING_PATIENCE)
        self._warn()

    def _work(self) -> None:
        while (batch := self._queue.head()) is not None:
            try:
                self._write(batch)
            except Exception as error:  # noqa: BLE001 -- whatever went wrong, training goes on
                self._lose(batch, f"{type(error).__name__}: {error}")
            self._queue.done()
        if self._segment is not None:
            if self._watch is not None:
                self._note(self._watch.close())
            with suppress(OSError):
                self._segment.close()

    def _look(self, batch: Batch) -> None:
        if self._watch is None:
            return
        try:
            batch.events.extend(self._watch.take(batch))
        except Exception as error:  # noqa: BLE001 -- recording goes on without alerts
            self._watch = None
            message = f"alerts are off from here: {type(error).__name__}: {error}"
            batch.events.append(Event("error", message, batch.step))

    def _write(self, batch: Batch) -> None:
        self._look(batch)
        if self._segment is None:
            return
        batch = self._losses.joined(batch)
        _forget_tensors(batch, self._losses.tensors | self._queue.dropped_tensors)
        try:
            _append(self._segment, batch)
        except OSError as error:
            self._lose(batch, f"{self._segment.folder}: {error.strerror or error}")
            return
        batch.events.extend(self._losses.recovered(batch.step))
        self.failure = None
        if batch.events:
            self._note(batch.events)

    def _lose(self, batch: Batch, why: str) -> None:
        first = self.failure is None
        self.failure = why
        self._losses.add(batch)
        if first and self._segment is not None:
            self._note([Event("gap", f"writing stopped: {why}", batch.step)])

    def _note(self, events: list[Event]) -> None:
        try:
            if self._segment is not None:
                self._segment.note(events)
        except OSError:
            self._losses.events.extend(events)

    def _warn(self) -> None:
        if self.failure is None or self._warned:
            return
        self._warned = True
        _say(f"msprobe records nothing: {self.failure}. Training goes on.")


def _say(message: str) -> None:
    """Warns; where warnings are errors, it does not become an exception inside a training step."""
    with suppress(Warning):
        warnings.warn(message, RuntimeWarning, stacklevel=4)


def _append(segment: SegmentWriter, batch: Batch) -> None:
    """Appends a batch; where the disk has no room for its tensors, without them."""
    try:
        segment.append(batch)
    except OSError as error:
        if not batch.tensors and not batch.rows:
            raise
        why = f"they could not be written: {error.strerror or error}"
        _forget_tensors(batch, _shed_tensors(batch, why))
        _shed_rows(batch, why)
        segment.append(batch)


class _Queue:
    """Batches on their way to the writer's thread, bounded by bytes."""

    def __init__(self, limit: int, patience: float) -> None:
        self._limit = limit
        self._patience = patience
        self._batches: deque[tuple[Batch, int]] = deque()
        self._bytes = 0
        self._num_done = 0
        self._stalled_at = -1
        self._changed = threading.Condition()
        self.closed = False
        self.dropped_tensors: frozenset[int] = frozenset()

    def put(self, batch: Batch, *, hopeless: Callable[[], bool]) -> None:
        size = batch.nbytes
        with self._changed:
            if self.closed:
                return
            self._wait(lambda: hopeless() or all(queued.step == batch.step for queued, _ in self._batches), LAG)
            self._wait(lambda: hopeless() or self._has_room(size), self._patience)
            if not self._has_room(size):
                self.dropped_tensors |= _shed_tensors(batch, _SLOW)
                if not self._has_room(batch.nbytes):
                    _shed_rows(batch, _SLOW)
                if not self._has_room(batch.nbytes):
                    _shed_records(batch, _SLOW)
                size = batch.nbytes
            self._batches.append((batch, size))
            self._bytes += size
            self._changed.notify_all()

    def _wait(self, condition: Callable[[], bool], seconds: float) -> None:
        """Waits for a condition, but not when an earlier wait was in vain and nothing was written since."""
        if self._stalled_at != self._num_done and not self._changed.wait_for(condition, seconds):
            self._stalled_at = self._num_done

    def head(self) -> Batch | None:
        """Waits for the oldest batch, which stays in the queue until ``done``; None after closing."""
        with self._changed:
            self._changed.wait_for(lambda: self._batches or self.closed)
            return self._batches[0][0] if self._batches else None

    def done(self) -> None:
        with self._changed:
            _, size = self._batches.popleft()
            self._bytes -= size
            self._num_done += 1
            self._changed.notify_all()

    def wait_until_empty(self, timeout: float | None) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._batches, timeout)

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def _has_room(self, size: int) -> bool:
        return not self._batches or self._bytes + size <= self._limit


def _shed_tensors(batch: Batch, why: str) -> frozenset[int]:
    """Drops the saved tensors of a batch and gives their numbers."""
    dropped = frozenset(t.seq for t in batch.tensors)
    if dropped:
        batch.events.append(Event("drop", f"saved tensors dropped: {why}", batch.step, count=len(dropped)))
        batch.tensors = []
    return dropped


def _shed_rows(batch: Batch, why: str) -> None:
    if batch.rows:
        batch.events.append(Event("drop", f"row statistics dropped: {why}", batch.step, count=len(batch.rows)))
        batch.rows = []
        _clear(batch, "rows", np.ones(len(batch), bool))


def _shed_records(batch: Batch, why: str) -> None:
    if len(batch):
        batch.events.append(Event("drop", f"records dropped: {why}", batch.step, count=len(batch)))
        batch.records = {}


def _forget_tensors(batch: Batch, seqs: frozenset[int]) -> None:
    """Makes records that refer to a tensor which was not saved say so."""
    if seqs and len(batch) and "tensor" in batch.records:
        _clear(batch, "tensors", np.isin(batch.records["tensor"], np.fromiter(seqs, np.int64)))


def _clear(batch: Batch, what: str, where: NDArray[np.bool_]) -> None:
    reference = {"tensors": "tensor", "rows": "rows"}[what]
    if reference in batch.records:
        batch.records[reference] = np.where(where, -1, batch.records[reference])
    if "has" in batch.records:
        keep = np.uint8(0xFF ^ HAS[what])
        batch.records["has"] = np.where(where, batch.records["has"] & keep, batch.records["has"])


class _Losses:
    """What could not be written, and what of it must still be: the catalogue, facts and events."""

    def __init__(self) -> None:
        self._kept = Batch(step=0)
        self._records = 0
        self._steps: list[int] = []
        self.tensors: frozenset[int] = frozenset()

    @property
    def events(self) -> list[Event]:
        return self._kept.events

    def add(self, batch: Batch) -> None:
        self._records += len(batch)
        self._steps.append(batch.step)
        self.tensors |= {t.seq for t in batch.tensors}
        self._kept.take_over(batch)

    def joined(self, batch: Batch) -> Batch:
        """Gives the batch with what must still be written in front."""
        batch.take_over(self._kept)
        self._kept = Batch(step=0)
        return batch

    def recovered(self, step: int) -> list[Event]:
        """Gives the event that tells what is missing, now that writing works again."""
        if not self._steps:
            return []
        first, last, self._steps = min(self._steps), max(self._steps), []
        lost, self._records = self._records, 0
        span = f"step {first}" if first == last else f"steps {first} to {last}"
        return [Event("gap", f"{lost} records of {span} were lost while writing failed", step, count=lost)]
