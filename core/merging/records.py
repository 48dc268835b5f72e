"""Make the records of wholes from those of their parts, exactly, in columns.

Statistics, checksums and sketches of parts combine as ``core.combining`` says. Of a sum over ranks only the sketch is
known (sketches are linear). What cannot be known is absent, never guessed: ``has`` then lacks the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.combining import Groups, add_checksums, add_sketches, combine_statistics
from msprobe.core.dtypes import FORMATS
from msprobe.core.merging.plans import ALONE, JOIN, MEAN, SUM, Plan
from msprobe.core.records import HAS, RECORD_COLUMNS, STATISTICS, Status, filler

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.merging.grouping import Members
    from msprobe.core.run.reader import RankRun
    from msprobe.core.sites import Form

Columns = dict[str, "NDArray[Any]"]

#: Records of ranks that are worked on at a time; bounds the memory that merging takes beside the records themselves.
CHUNK = 250_000

_SCALED = ("min", "max", "mean", "mean_abs", "norm")
_COPIED = tuple(c.name for c in RECORD_COLUMNS if c.name not in ("seq", "site", "form", "step", "micro_step"))


@dataclass(frozen=True)
class Used:
    """The members that make the wholes: rows of ``Members``, the whole of each, and what undoes its scale."""

    member: NDArray[np.int64]
    whole: NDArray[np.int64]
    undone: NDArray[np.float64]


def used_members(members: Members, plans: Sequence[Plan], wholes: NDArray[np.int64] | None = None) -> Used:
    """Gives the kept members of every whole (or of some) whose plan succeeds, sorted by whole."""
    chosen = np.arange(len(members)) if wholes is None else wholes
    found: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]] = []
    numbers = members.plan[chosen]
    order = np.argsort(numbers, kind="stable")
    bounds = np.searchsorted(numbers[order], np.arange(len(plans) + 1))
    for number, plan in enumerate(plans):
        groups = chosen[order[bounds[number] : bounds[number + 1]]]
        if plan.reason or not len(groups):
            continue
        kept = np.array([k.member for k in plan.kept], dtype=np.int64)
        member = (members.starts[groups][:, None] + kept).reshape(-1)
        found.append((member, np.repeat(groups, len(kept)), np.tile(np.array(plan.undone), len(groups))))
    if not found:
        nothing = np.zeros(0, dtype=np.int64)
        return Used(nothing, nothing, np.zeros(0))
    member, whole, undone = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(whole, kind="stable")
    return Used(member[order], whole[order], undone[order])


def gather(ranks: Sequence[RankRun], members: Members, rows: NDArray[np.int64], names: Sequence[str]) -> Columns:
    """Gives columns of the records that members stand for; columns that a rank lacks hold fillers."""
    columns = {c.name: c for c in RECORD_COLUMNS}
    out: Columns = {}
    for name in names:
        column = columns[name]
        out[name] = np.full((len(rows), column.width) if column.width else len(rows), filler(column), column.dtype)
    positions = members.rank[rows]
    order = np.argsort(positions, kind="stable")
    bounds = np.searchsorted(positions[order], np.arange(len(ranks) + 1))
    for position, rank in enumerate(ranks):
        places = order[bounds[position] : bounds[position + 1]]
        if not len(places):
            continue
        own = members.row[rows[places]]
        for name in names:
            if name in rank.records:
                out[name][places] = rank.records[name][own]
    return out


def elements_of(forms: Sequence[Form]) -> NDArray[np.int64]:
    """Counts the real elements of each form."""
    counts = [int(np.prod(form.shape, dtype=np.int64)) for form in forms]
    doubled = [2 if form.dtype in FORMATS and FORMATS[form.dtype].kind == "complex" else 1 for form in forms]
    return np.array(counts, dtype=np.int64) * np.array(doubled, dtype=np.int64)


class Combiner:
    """Combines the records of wholes, a bounded number at a time."""

    def __init__(
        self, ranks: Sequence[RankRun], members: Members, plans: Sequence[Plan], forms: Sequence[Form]
    ) -> None:
        self._ranks, self._members, self._plans = ranks, members, plans
        self._elements = elements_of(forms)
        held = {name for rank in ranks for name in rank.records}
        self.names = tuple(name for name in _COPIED if name in held)
        self._how = np.array([(ALONE, JOIN, SUM, MEAN).index(plan.how) for plan in plans], dtype=np.int64)
        self._terms = np.array([plan.terms for plan in plans], dtype=np.float64)
        self._adds = np.array([plan.adds for plan in plans], dtype=bool)
        self._ordered = np.array([plan.ordered for plan in plans], dtype=bool)
        self._failed = np.array([bool(plan.reason) for plan in plans], dtype=bool)

    def combine(self, used: Used, plan_of: NDArray[np.int64]) -> Columns:
        """Gives the records of wholes, whose plans ``plan_of`` names; wholes without used members hold no values."""
        out = {name: _filled(name, len(plan_of)) for name in self.names}
        out["status"][:] = Status.UNSUPPORTED
        out["has"][:] = 0
        starts = np.flatnonzero(np.diff(used.whole, prepend=-1))
        for first, last in _chunks(starts, len(used.whole)):
            part = Used(used.member[first:last], used.whole[first:last], used.undone[first:last])
            wholes, values = self._combine_chunk(part, plan_of)
            for name in self.names:
                out[name][wholes] = values[name]
        return out

    def _combine_chunk(self, used: Used, plan_of: NDArray[np.int64]) -> tuple[NDArray[np.int64], Columns]:
        columns = gather(self._ranks, self._members, used.member, self.names)
        _undo_scale(columns, used.undone)
        wholes, numbers = np.unique(used.whole, return_inverse=True)
        groups = Groups.of(numbers.astype(np.int64))
        plan = plan_of[wholes]
        alone = self._how[plan] == 0
        joined = self._how[plan] == 1
        made = {name: column[groups.starts].copy() for name, column in columns.items()}
        made["status"] = groups.reduce(np.maximum, columns["status"])
        has = groups.reduce(np.bitwise_and, columns["has"])
        whole_tensors = groups.reduce(np.minimum, columns["tensor"]) >= 0
        if not alone.all():
            self._join(made, columns, self._elements[self._members.form[used.member]], plan, groups)
        adds = self._adds[plan]
        has = np.where(alone | joined, has, has & (HAS["sketch"] | HAS["tensors"]))
        has = np.where(alone | adds, has, has & ~np.uint8(HAS["sketch"] | HAS["checksums"]))
        has = np.where(self._ordered[plan], has, has & ~np.uint8(HAS["sketch"] | HAS["checksums"] | HAS["tensors"]))
        has = np.where(made["status"] == Status.MEASURED, has, 0)
        made["tensor"] = np.where(whole_tensors & self._ordered[plan], wholes, -1)
        if "rows" in made:
            made["rows"] = np.where(alone | joined, np.where(has & HAS["rows"], wholes, -1), -1)
        made["has"] = has.astype(np.uint8)
        _blank(made)
        return wholes, made

    def _join(
        self,
        made: Columns,
        columns: Columns,
        elements: NDArray[np.int64],
        plan: NDArray[np.int64],
        groups: Groups,
    ) -> None:
        many = groups.sizes > 1
        if STATISTICS[0] in columns:
            found = combine_statistics({name: columns[name] for name in STATISTICS}, elements, groups)
            for name, column in found.items():
                made[name][many] = column[many]
        if "sketch" in columns:
            total = add_sketches(columns["sketch"], groups)
            mean = self._how[plan] == 3
            total[mean] /= self._terms[plan[mean]][:, None]
            made["sketch"][many] = total[many]
        for name in ("checksum", "content_sum"):
            if name in columns:
                made[name][many] = add_checksums(columns[name], groups)[many]


def _chunks(starts: NDArray[np.int64], length: int) -> list[tuple[int, int]]:
    """Cuts rows into pieces of about ``CHUNK``, at starts of wholes only."""
    cuts = [0]
    for target in range(CHUNK, length, CHUNK):
        cut = int(starts[np.searchsorted(starts, target)]) if target <= starts[-1] else length
        if cut > cuts[-1]:
            cuts.append(cut)
    if cuts[-1] != length:
        cuts.append(length)
    return list(pairwise(cuts))


def _filled(name: str, count: int) -> NDArray[Any]:
    column = next(c for c in RECORD_COLUMNS if c.name == name)
    return np.full((count, column.width) if column.width else count, filler(column), column.dtype)


def _undo_scale(columns: Columns, undone: NDArray[np.float64]) -> None:
    """Takes a recorded scale out of gradients; bits then are others than were recorded, so checksums go."""
    rows = np.flatnonzero(undone != 1.0)
    if not len(rows):
        return
    factor = undone[rows]
    for name in _SCALED:
        if name in columns:
            columns[name][rows] *= factor
    if "m2" in columns:
        columns["m2"][rows] *= factor * factor
    if "sketch" in columns:
        columns["sketch"][rows] *= factor[:, None]
    columns["has"][rows] &= ~np.uint8(HAS["checksums"] | HAS["rows"])


def _blank(made: Columns) -> None:
    """Puts fillers where a quantity is not held."""
    for column in RECORD_COLUMNS:
        if column.wanted_by and column.name in made:
            made[column.name][made["has"] & HAS[column.wanted_by] == 0] = filler(column)
