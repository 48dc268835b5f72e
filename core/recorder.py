"""The recorder that every adapter feeds: numbers nodes and sites, keeps steps, decides what is kept of each tensor.

It knows no framework. A ``Reducer`` measures tensors on their own device, and nothing waits until the step ends; then
one ``collect`` gives all numbers, and a batch goes to the writer's queue. Whatever fails in here is noted in the run
and never raised into the model.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from msprobe.core.content_vectors import has_vectors
from msprobe.core.events import EventLog, FactLog
from msprobe.core.pending import PendingRecords
from msprobe.core.records import HAS, Status
from msprobe.core.run.batch import Batch, RankInfo, SavedRows, SavedTensor, SiteRow
from msprobe.core.scalars import ScalarLog
from msprobe.core.schedule import Schedule
from msprobe.core.selection import what_is_kept
from msprobe.core.sites import Direction, Form, Node, NodeKind, Role

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from msprobe.core.graph import EdgeSource
    from msprobe.core.options import RecordOptions
    from msprobe.core.protocols import Reducer, RowSnapshot, Snapshot

#: A step is written in parts when it has this many records, lasts this many seconds or holds this share of the
#: queue in copies of tensors: then neither memory grows without bound nor is much lost when the process is killed.
FLUSH_RECORDS = 16_384
FLUSH_SECONDS = 2.0
FLUSH_SHARE = 4

MeasurePlain = Callable[[Any, frozenset[str]], "tuple[Form, int] | None"]

_STATISTICS = frozenset({"statistics"})
_MEASURED = frozenset({"statistics", "sketch", "checksums"})
_MEASURED_STATUS = int(Status.MEASURED)
_NO_VALUES = frozenset({"meta", "fake"})


class BatchSink(Protocol):
    """Where batches go: a ``core.run.writer.RunWriter``, or what stands for one.

    It may have an attribute ``rank`` (a ``RankInfo``, or None while the rank is not known).
    """

    def submit(self, batch: Batch) -> None: ...

    def close(self) -> None: ...


class Recorder:
    """Collects what an adapter sees and hands it over at the end of each step. Safe to call from any thread."""

    def __init__(self, writer: BatchSink, reducer: Reducer, options: RecordOptions) -> None:
        self.step = options.start_step
        self.micro_step = 0
        self._writer = writer
        self._reducer = reducer
        self._measure_plain: MeasurePlain = getattr(reducer, "measure_plain", lambda tensor, what: None)
        self._options = options
        self._schedule = Schedule.of(options)
        self._lock = threading.RLock()
        self._batch = Batch(step=self.step)
        self._records = PendingRecords()
        self._events = EventLog()
        self._facts = FactLog()
        self._scalars = ScalarLog()
        self._nodes: dict[str, int] = {}
        self._node_list: list[Node] = []
        self._wanted: list[frozenset[str] | None] = []
        self._sites: dict[tuple[int, Direction, Role, str, int], int] = {}
        self._site_keys: list[tuple[int, Direction, Role, str, int]] = []
        self._failed_sites: set[int] = set()
        self._forms: dict[Form, int] = {}
        #: The same by identity, of those that ``_forms`` keeps alive.
        self._form_numbers: dict[int, int] = {}
        self._stacks: dict[tuple[str, ...], int] = {}
        self._edges: set[tuple[int, int]] = set()
        self._has: dict[frozenset[str], tuple[int, frozenset[str]]] = {}
        self._copies: list[tuple[int, Snapshot]] = []
        self._row_copies: list[tuple[int, RowSnapshot]] = []
        self._copied_bytes = 0
        self._most_copied = options.queue_bytes // FLUSH_SHARE
        self._saved_bytes = 0
        self._budget_spent = False
        self._since = time.monotonic()
        self._closed = self.paused = False
        #: Whether the present step is to be recorded.
        self.recording = self.records(self.step)

    def records(self, step: int) -> bool:
        """Tells whether a step is to be recorded on this rank."""
        rank: RankInfo | None = getattr(self._writer, "rank", None)
        return not self.paused and self._schedule.wants(step, rank.rank if rank is not None else None)

    def use(self, options: RecordOptions) -> None:
        """Goes on with other options from the present step on, of which nothing may be recorded yet."""
        with self._lock:
            self._options, self._schedule = options, Schedule.of(options)
            self._wanted = [None] * len(self._wanted)
            self.recording = self.records(self.step)

    # -- the catalogue

    def node(self, path: str, kind: NodeKind, class_name: str, parent: str | None, api: str = "") -> int:
        """Gives the number of a node; the first call for a path says what the node is."""
        number = self._nodes.get(path)
        if number is not None:
            return number
        with self._lock:
            number = self._nodes.setdefault(path, len(self._node_list))
            if number == len(self._node_list):
                node = Node(path, kind, class_name, parent, api)
                self._node_list.append(node)
                self._wanted.append(None)
                self._batch.nodes.append(node)
            return number

    def site(
        self,
        node: int,
        direction: Direction,
        role: Role,
        argument: str,
        call: int,
        stack: tuple[str, ...] | None = None,
    ) -> int:
        """Gives the number of a site; ``stack``, innermost frame last, is kept from the first call."""
        key = (node, direction, role, argument, call)
        number = self._sites.get(key)
        if number is not None:
            return number
        with self._lock:
            number = self._sites.setdefault(key, len(self._site_keys))
            if number == len(self._site_keys):
                self._site_keys.append(key)
                self._batch.sites.append(SiteRow(node, direction, role, argument, call, self._stack(stack)))
            return number

    def wants(self, node: int) -> frozenset[str]:
        """Gives what is kept of the tensors of a node, by ``targets``, ``exclude`` and ``what_for``; empty: nothing."""
        wanted = self._wanted[node]
        if wanted is None:
            wanted = self._wanted[node] = what_is_kept(self._node_list[node], self._options)
        return wanted

    def key_of(self, site: int) -> tuple[int, Direction, Role, str, int]:
        """Gives what a site is: node, direction, role, argument and call."""
        return self._site_keys[site]

    def edge(self, source: int, target: int, known_by: EdgeSource) -> None:
        """Notes that the tensor at site ``target`` was computed from that at ``source``; once is enough."""
        with self._lock:
            if (source, target) not in self._edges:
                self._edges.add((source, target))
                self._batch.edges.append((source, target, known_by))

    def _stack(self, frames: tuple[str, ...] | None) -> int:
        if frames is None:
            return -1
        number = self._stacks.get(frames)
        if number is None:
            number = self._stacks[frames] = len(self._stacks)
            self._batch.stacks.append(frames)
        return number

    # -- what happens in a step

    def observe(  # noqa: PLR0913 -- what hooks know of a tensor
        self,
        site: int,
        tensor: Any,
        *,
        what: frozenset[str] | None = None,
        step: int | None = None,
        micro_step: int | None = None,
        share: int | None = None,
        reshaped: bool = False,
        status: Status | None = None,
    ) -> int:
        """Records a tensor and gives the record's number, -1 when nothing is recorded at this site. Never raises.

        The tensor is measured before this returns, in the order of its device's stream; nothing waits for it.

        Args:
            site: Where the tensor is seen.
            tensor: A tensor of the reducer's framework.
            what: What to keep of it; by default what the site's node ``wants``.
            step: The step that the tensor belongs to, by default the present one; ``micro_step`` alike.
            micro_step: The pass that the tensor belongs to.
            share: The number that ``observe`` gave for this very tensor with its present content: form and numbers are
                taken over, nothing is measured or copied, provided that record kept all that is asked here.
            reshaped: The tensor has the elements of ``share`` in the same order, perhaps in another shape; the form is
                then its own, and row statistics are measured again.
            status: Why the values must not be read; None: they may.
        """
        if what is None:
            what = self.wants(self._site_keys[site][0])
        if not what or site in self._failed_sites:
            return -1
        with self._lock:
            place = (self.step if step is None else step, self.micro_step if micro_step is None else micro_step, site)
            has, measured = self._has.get(what) or self._plan(what)
            wanted = has & ~HAS["tensors"] if self._budget_spent else has
            known = self._records.shared(share, wanted) if share is not None else None
            try:
                if known is None or (reshaped and "rows" in what):
                    known = self._measure(tensor, what, measured, has, status)
                elif reshaped:
                    known = (self._form(self._reducer.describe(tensor)), *known[1:])
                seq = self._records.add((*place, *known))
            except Exception as error:  # noqa: BLE001 -- the framework's own code, on a tensor of any kind
                seq = self._fail(place, tensor, error)
            if self._is_long():
                self._flush(complete=False)
            return seq

    def fact(self, node: int | None, kind: str, name: str, value: object) -> None:
        """Notes a value that is no tensor; only when it differs from the last one of (node, kind, name)."""
        with self._lock:
            self._facts.add(-1 if node is None else node, kind, name, value, at=(self.step, self.micro_step))

    def scalar(self, name: str, value: Any, *, step: int | None = None) -> None:
        """Notes a number of the step, a plain one or a tensor of one element, which is not waited for. Never raises."""
        with self._lock:
            at = (self.step if step is None else step, self.micro_step)
            if isinstance(value, int | float):
                self._scalars.add(name, float(value), at=at)
                return
            try:
                if math.prod(shape := self._reducer.describe(value).shape) != 1:
                    raise ValueError(f"it has the shape {shape}")
                self._scalars.add_slot(name, self._reducer.measure(value, _STATISTICS), at=at)
            except Exception as error:  # noqa: BLE001 -- anything that the user logs
                message = f"scalar {name!r} is no number: {type(error).__name__}: {error}"
                self._events.add("error", message, "", step=self.step)

    def norm_of(self, name: str, seq: int) -> None:
        """Counts a record of this step into the scalar ``name``: the norm of all tensors that are counted into it."""
        with self._lock:
            self._scalars.norm_of(name, seq)

    def event(self, kind: str, message: str, node: str = "") -> None:
        """Notes something that happened to the recording; the same again is counted."""
        with self._lock:
            self._events.add(kind, message, node, step=self.step)

    def begin_micro_step(self) -> None:
        """Counts one more pass; called when a root forward begins after an earlier one of the same step."""
        self.micro_step += 1

    def end_step(self) -> None:
        """Hands the step over and goes on to the next."""
        with self._lock:
            self._flush(complete=True)
            self.step += 1
            self.micro_step = 0
            self._batch.step = self.step
            self.recording = self.records(self.step)

    def flush(self) -> None:
        """Hands over what there is of the present step."""
        with self._lock:
            self._flush(complete=False)

    def close(self) -> None:
        """Hands over what is left and closes the writer."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._flush(complete=False, last=True)
            self.recording = False
        self._writer.close()

    # -- measuring and handing over

    def _measure(
        self, tensor: Any, what: frozenset[str], measured: frozenset[str], has: int, status: Status | None
    ) -> tuple[int, ...]:
        """Starts measuring; gives form, status, has, tensor, rows and slot."""
        plain = self._measure_plain(tensor, measured) if measured and status is None else None
        if plain is not None:
            form, slot = plain
            number = self._form(form)
        else:
            form = self._reducer.describe(tensor)
            number = self._form(form)
            if status is None:
                status = Status.MEASURED if form.kind == "dense" else _status_of(form.kind)
            if status != Status.MEASURED:
                return number, status, 0, -1, -1, -1
            slot = self._reducer.measure(tensor, measured) if measured else -1
        if len(measured) == len(what):
            return number, _MEASURED_STATUS, has, -1, -1, slot
        seq, tensor_seq, rows_seq = self._records.next, -1, -1
        if "rows" in what:
            self._row_copies.append((seq, self._reducer.rows(tensor)))
            rows_seq = seq
        if "vectors" in what and has_vectors(form.shape, form.dtype):
            self._row_copies.append((seq, self._reducer.vectors(tensor)))  # type: ignore[attr-defined]  # see Reducer
        if "tensors" in what:
            if self._copy(seq, tensor):
                tensor_seq = seq
            else:
                has &= ~HAS["tensors"]
        return number, _MEASURED_STATUS, has, tensor_seq, rows_seq, slot

    def _plan(self, what: frozenset[str]) -> tuple[int, frozenset[str]]:
        plan = sum(HAS[name] for name in what if name in HAS), what & _MEASURED
        self._has[what] = plan
        return plan

    def _form(self, form: Form) -> int:
        number = self._form_numbers.get(id(form))
        if number is None:
            number = self._forms.get(form)
            if number is None:
                number = self._forms[form] = self._form_numbers[id(form)] = len(self._forms)
                self._batch.forms.append(form)
        return number

    def _copy(self, seq: int, tensor: Any) -> bool:
        """Copies a tensor to be saved, unless the budget is used up: the first one that does not fit ends it."""
        if not self._budget_spent:
            copy = self._reducer.snapshot(tensor)
            size, budget = copy.data.nbytes, self._options.tensor_budget
            self._budget_spent = bool(budget) and self._saved_bytes + size > budget
            if not self._budget_spent:
                self._copies.append((seq, copy))
                self._copied_bytes += size
                self._saved_bytes += size
                return True
        self._events.add("drop", "tensors not saved: the tensor budget is used up", "", step=self.step)
        return False

    def _fail(self, place: tuple[int, int, int], tensor: Any, error: Exception) -> int:
        """Gives up on a site: one record and one event say so."""
        site = place[2]
        self._failed_sites.add(site)
        path = self._node_list[self._site_keys[site][0]].path
        message = f"cannot be measured, nothing more is recorded here: {type(error).__name__}: {error}"
        self._events.add("error", message, path, step=self.step)
        try:
            form = self._form(self._reducer.describe(tensor))
        except Exception:  # noqa: BLE001 -- the same tensor, asked for less
            form = self._form(Form("unknown", (), type(tensor).__name__))
        return self._records.add((*place, form, Status.FAILED, 0, -1, -1, -1))

    def _is_long(self) -> bool:
        """Tells whether so much is pending that it should not wait for the end of the step."""
        pending, now = len(self._records), time.monotonic()
        if pending <= 1:
            self._since = now
        return pending >= FLUSH_RECORDS or now - self._since > FLUSH_SECONDS or self._copied_bytes > self._most_copied

    def _flush(self, *, complete: bool, last: bool = False) -> None:
        batch, self._batch = self._batch, Batch(step=self.step)
        if len(self._records) or self._scalars.waits:
            self._fill(batch)
        batch.facts = self._facts.take() + self._scalars.take((self.step, self.micro_step), complete=complete or last)
        batch.events = self._events.take(self.step, everything=last)
        batch.complete = complete
        if _holds_something(batch):
            self._writer.submit(batch)

    def _fill(self, batch: Batch) -> None:
        """Moves what is pending into the batch."""
        copies, rows = self._copies, self._row_copies
        self._copies, self._row_copies, self._copied_bytes = [], [], 0
        measured: Mapping[str, NDArray[Any]] | None = None
        try:
            measured = self._reducer.collect()
            batch.tensors = [SavedTensor(seq, c.dtype, c.shape, c.data) for seq, c in copies]
            batch.rows = [SavedRows(seq, c.columns) for seq, c in rows]
            batch.records = self._records.take(measured) if len(self._records) else {}
        except Exception as error:  # noqa: BLE001 -- the device may have failed
            message = f"the numbers of {len(self._records)} records were lost: {type(error).__name__}: {error}"
            self._events.add("error", message, "", step=self.step)
            batch.records, batch.tensors, batch.rows = self._records.take(None), [], []
            measured = None
        self._scalars.collect(measured, batch.records)


def _status_of(kind: str) -> Status:
    return Status.NO_VALUES if kind in _NO_VALUES else Status.UNSUPPORTED


def _holds_something(batch: Batch) -> bool:
    catalogue = batch.nodes or batch.sites or batch.forms or batch.edges
    return bool(batch.records or catalogue or batch.facts or batch.events)
