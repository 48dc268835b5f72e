"""Bring two runs that cut a step's batch into different numbers of micro-steps to one form: the whole step.

Activations and their gradients of the micro-steps are pieces of one batch and are joined along the first dimension;
gradients of parameters add; what has one shape on both sides however the batch is cut (tables of positions, masks) is
taken once. What the joined record cannot know is absent, not guessed: a sketch cannot be joined, since its signs are
keyed by the position in the whole, nor a checksum; of a sum only the sketch is known.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.records import HAS, STATISTICS, Status, filler, record_columns
from msprobe.core.records import WHAT as ALL_KINDS
from msprobe.core.sites import Direction, Form, Role
from msprobe.core.statistics import Statistics, columns, merge

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from msprobe.core.matching.sites import SitePairs
    from msprobe.core.matching.views import RankView

_GRADIENT = tuple(Role).index(Role.GRADIENT)
_BACKWARD = tuple(Direction).index(Direction.BACKWARD)


class WholeSteps:
    """One rank of a run, some of whose steps are seen as if they had been one pass. Read like a ``RankRun``."""

    def __init__(self, run: RankView, groups: Sequence[_Group], steps: frozenset[int]) -> None:
        self._run = run
        self._parts: dict[int, _Group] = {}
        self.nodes, self.sites, self.edges = run.nodes, run.sites, run.edges
        self.facts, self.events = run.facts, run.events
        self.forms: Sequence[Form] = run.forms
        self.records = self._joined(groups, steps)

    def _joined(self, groups: Sequence[_Group], steps: frozenset[int]) -> dict[str, NDArray[Any]]:
        """Gives the records of all other steps, and one record for each group of the joined ones."""
        own = self._run.records
        kept = np.flatnonzero(~np.isin(own["step"], list(steps)))
        single = np.array([group.rows[0] for group in groups if group.how == "once"], dtype=np.int64)
        rows = np.concatenate([kept, single])
        records = {name: column[rows] for name, column in own.items()}
        records["micro_step"] = records["micro_step"].copy()
        records["micro_step"][len(kept) :] = 0
        self._rows = rows
        joined = [group for group in groups if group.how != "once"]
        made = self._make(joined)
        self._parts = {len(rows) + i: group for i, group in enumerate(joined)}
        known = getattr(self._run, "reasons", {})
        self.reasons = {i: known[row] for i, row in enumerate(rows.tolist()) if row in known} if known else {}
        return {name: np.concatenate([column, made[name].astype(column.dtype)]) for name, column in records.items()}

    def _make(self, groups: Sequence[_Group]) -> dict[str, NDArray[Any]]:
        own, count = self._run.records, len(groups)
        first = np.array([group.rows[0] for group in groups], dtype=np.int64)
        made = {name: column[first].copy() for name, column in own.items()}
        fillers = {column.name: filler(column) for column in record_columns(frozenset(ALL_KINDS)) if column.wanted_by}
        for name in fillers.keys() & made.keys():
            made[name][...] = fillers[name]
        made["micro_step"][...] = 0
        made["has"][...] = 0
        made["tensor"][...] = -1
        forms, numbers = list(self._run.forms), {form: i for i, form in enumerate(self._run.forms)}
        measured: list[Statistics] = []
        for index, group in enumerate(groups):
            measured.append(self._join_group(made, index, group))
            if group.form not in numbers:
                numbers[group.form] = len(forms)
                forms.append(group.form)
            made["form"][index] = numbers[group.form]
        self.forms = tuple(forms)
        known = np.array([statistics.finite > 0 or statistics.nan > 0 for statistics in measured], dtype=bool)
        if count and STATISTICS[0] in made:
            for name, column in columns(measured).items():
                made[name][known] = column[known]
            made["has"][known] |= HAS["statistics"]
        return made

    def _join_group(self, made: dict[str, NDArray[Any]], index: int, group: _Group) -> Statistics:
        """Fills one joined record; gives the statistics it has (none of a sum)."""
        own, rows = self._run.records, group.rows
        made["status"][index] = own["status"][rows].max()
        held = np.bitwise_and.reduce(own["has"][rows])
        if own["status"][rows].max() != Status.MEASURED:
            return Statistics()
        if group.how == "unknown":
            made["status"][index] = Status.UNSUPPORTED
            return Statistics()
        if (own["tensor"][rows] >= 0).all():
            made["tensor"][index] = own["tensor"][rows[0]]
        if group.how == "sum":
            if held & HAS["sketch"]:
                made["sketch"][index] = own["sketch"][rows].sum(axis=0)
                made["has"][index] = HAS["sketch"]
            return Statistics()
        return merge([self._statistics(row) for row in rows.tolist()]) if held & HAS["statistics"] else Statistics()

    def _statistics(self, row: int) -> Statistics:
        own = self._run.records
        values = {name: own[name][row].item() for name in STATISTICS}
        elements = int(np.prod(self._run.forms[int(own["form"][row])].shape))
        return Statistics(finite=elements - values["nan"] - values["pos_inf"] - values["neg_inf"], **values)

    @property
    def below(self) -> RankView:
        """The view that this one is made of."""
        return self._run

    def origin(self, index: int) -> int:
        """Gives the row of the view below that a record is, or the first that it was joined from."""
        return int(self._parts[index].rows[0] if index in self._parts else self._rows[index])

    def tensor(self, index: int) -> NDArray[Any] | None:
        """Gives the values of a record, joined where the record is."""
        if index not in self._parts:
            return self._run.tensor(int(self._rows[index])) if index < len(self._rows) else None
        group = self._parts[index]
        parts = [part for row in group.rows if (part := self._run.tensor(int(row))) is not None]
        if len(parts) < len(group.rows):
            return None
        if group.how == "join":
            return np.concatenate(parts)
        total: NDArray[Any] = np.add.reduce(parts, dtype=np.float64)
        return total

    def content_vectors(self, index: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]] | None:
        """Gives row and column sums of a record's content; None of joined ones."""
        return None if index in self._parts else self._run.content_vectors(int(self._rows[index]))

    def row_statistics(self, index: int) -> Mapping[str, NDArray[Any]] | None:
        """Gives the row statistics of a record; None of joined ones."""
        return None if index in self._parts else self._run.row_statistics(int(self._rows[index]))


@dataclass(frozen=True, slots=True)
class _Group:
    """The records of one site in one step, and how they become one: ``once``, ``join``, ``sum`` or ``unknown``."""

    rows: NDArray[np.int64]
    how: str
    form: Form


def whole_steps(
    candidate: RankView, reference: RankView, sites: SitePairs, steps: NDArray[np.int64]
) -> tuple[RankView, RankView, int]:
    """Joins the micro-steps of those steps in which the two sides have different numbers of them.

    Gives both sides, unchanged if there is no such step, and how many steps were joined.
    """
    counts = [_micro_steps(run, steps) for run in (candidate, reference)]
    uneven = frozenset(step for step in steps.tolist() if counts[0].get(step, 0) != counts[1].get(step, 0))
    if not uneven:
        return candidate, reference, 0
    runs = (candidate, reference)
    places = [
        _rows_by_place(run, numbers, uneven)
        for run, numbers in zip(runs, (sites.candidate, sites.reference), strict=True)
    ]
    made = []
    for side, run in enumerate(runs):
        other, elsewhere = runs[1 - side], places[1 - side]
        groups = [_group(run, rows, other, elsewhere.get(place)) for place, rows in places[side].items()]
        made.append(WholeSteps(run, groups, uneven))
    return made[0], made[1], len(uneven)


def _micro_steps(run: RankView, steps: NDArray[np.int64]) -> dict[int, int]:
    """Counts the micro-steps of each step."""
    records = run.records
    rows = np.isin(records["step"], steps)
    found: dict[int, int] = {}
    for step, micro in set(zip(records["step"][rows].tolist(), records["micro_step"][rows].tolist(), strict=True)):
        found[step] = max(found.get(step, 0), micro + 1)
    return found


def _rows_by_place(
    run: RankView, numbers: NDArray[np.int64], steps: frozenset[int]
) -> dict[tuple[int, int], NDArray[np.int64]]:
    """Gives the rows of each (step, common site), in order of micro-steps."""
    records = run.records
    rows = np.flatnonzero(np.isin(records["step"], list(steps)))
    rows = rows[np.argsort(records["micro_step"][rows], kind="stable")]
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row, step, site in zip(
        rows.tolist(), records["step"][rows].tolist(), numbers[records["site"][rows]].tolist(), strict=True
    ):
        found[(step, site)].append(row)
    return {place: np.array(members, dtype=np.int64) for place, members in found.items()}


def _group(run: RankView, rows: NDArray[np.int64], other: RankView, other_rows: NDArray[np.int64] | None) -> _Group:
    forms = [run.forms[int(form)] for form in run.records["form"][rows]]
    site = int(run.records["site"][rows[0]])
    first = forms[0]
    if len(rows) == 1:
        return _Group(rows, "once", first)
    if run.sites.role[site] == _GRADIENT and run.sites.direction[site] == _BACKWARD:
        return _Group(rows, "sum", first)
    other_form = other.forms[int(other.records["form"][other_rows[0]])] if other_rows is not None else None
    same_everywhere = other_form is not None and all(form.shape == other_form.shape for form in forms)
    joinable = all(form.shape[1:] == first.shape[1:] and form.shape and form.dtype == first.dtype for form in forms)
    if same_everywhere and first.shape:
        return _Group(rows, "once", first)
    if not joinable:
        return _Group(rows, "unknown", first)
    whole = (sum(form.shape[0] for form in forms), *first.shape[1:])
    return _Group(rows, "join", Form(first.dtype, whole, first.kind, first.layout))
