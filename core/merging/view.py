"""A run of many ranks seen as the run of one: a lazy view that reads like what one rank recorded.

Nothing is written and no tensor is read before it is asked for. Every record can say what it was made from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.dtypes import unit_roundoff
from msprobe.core.merging.assembling import assemble, assemble_rows, assemble_vectors
from msprobe.core.merging.graph import MergedGraph
from msprobe.core.merging.grouping import Members, group_members
from msprobe.core.merging.order import execution_order
from msprobe.core.merging.planning import Mesh, Planner, Rules
from msprobe.core.merging.provenance import Provenance, provenance_of
from msprobe.core.merging.records import Combiner, used_members
from msprobe.core.merging.reductions import NO_REDUCTIONS, NOT_REDUCED, Reductions, find_reductions, settle_terms
from msprobe.core.merging.replicas import Differing, find_differing, replicas_of
from msprobe.core.run import tables
from msprobe.core.sites import Form

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.merging.identity import WholeCatalogue
    from msprobe.core.merging.plans import Plan
    from msprobe.core.run.reader import RankRun, Run

#: Begins ``Form.kind`` of a whole that could not be made; the reason follows.
NOT_KNOWN = "not known: "


class MergedRank(MergedGraph):
    """All ranks of a run as one. Reads like a ``RankRun``."""

    def __init__(
        self,
        run: Run,
        *,
        meshes: Mapping[int, Mesh],
        rules: Callable[[WholeCatalogue], Rules] | None = None,
        virtual: int = 1,
    ) -> None:
        super().__init__([run.rank(number) for number in run.ranks], run.ranks, meshes, virtual)
        self.path = run.path
        self._rules_of = rules
        self._shapes: dict[int, tuple[int, ...]] = {}
        #: Rows of ``members`` that stand in for others: replicas that differ from what is kept of them.
        self._instead: dict[int, int] = {}
        self._odd: dict[int, tuple[int, ...]] = {}
        #: What made a whole of partial gradients whose operation was not recorded: a factor by row; NaN: not known.
        self._settled: dict[int, float] = {}
        self.reductions: Reductions = NO_REDUCTIONS

    # --- records

    @cached_property
    def _all_forms(self) -> tuple[list[Form], list[NDArray[np.int64]]]:
        known: dict[Form, int] = {}
        numbers = [
            np.array([known.setdefault(form, len(known)) for form in rank.forms], dtype=np.int64) for rank in self.ranks
        ]
        return list(known), numbers

    @cached_property
    def _grouped(self) -> tuple[Members, list[Plan]]:
        forms, numbers = self._all_forms
        planner = Planner(self.catalogue, forms, self.numbers, self.meshes, self._rules, self._shapes)
        return group_members(self.ranks, self.catalogue, numbers, planner.kinds, planner.make)

    @cached_property
    def _rules(self) -> Rules | None:
        return self._rules_of(self.catalogue) if self._rules_of is not None else None

    @property
    def members(self) -> Members:
        """The records of all ranks, grouped into wholes."""
        return self._ordered[0]

    @property
    def order(self) -> NDArray[np.int64]:
        """The number in ``members`` of the whole that each row of ``records`` is."""
        return self._ordered[1]

    @property
    def plans(self) -> list[Plan]:
        """How each kind of group becomes a whole."""
        return self._grouped[1]

    @cached_property
    def _ordered(self) -> tuple[Members, NDArray[np.int64]]:
        """The grouped records, and the order in which ``records`` shows the groups."""
        members = self._grouped[0]
        seq = np.empty(len(members), dtype=np.int64)
        firsts = members.rank[members.starts]
        for position, rank in enumerate(self.ranks):
            own = np.flatnonzero(firsts == position)
            if len(own):
                seq[own] = rank.records["seq"][members.row[members.starts[own]]].astype(np.int64)
        return members, execution_order(members, self.catalogue, seq)

    @cached_property
    def combiner(self) -> Combiner:
        """What makes records of wholes."""
        return Combiner(self.ranks, self._grouped[0], self.plans, self._all_forms[0])

    @cached_property
    def records(self) -> dict[str, NDArray[Any]]:
        """The columns of ``core.records.RECORD_COLUMNS``, one row for each whole, in the order of execution."""
        members, order = self._ordered
        used = used_members(members, self.plans)
        made = self.combiner.combine(replace(used, member=self._substituted(used.member)), members.plan)
        records = {name: column[order] for name, column in made.items()}
        place = self.places
        for name in ("tensor", "rows"):
            if name in records:
                held = records[name] >= 0
                records[name][held] = place[records[name][held]]
        forms = np.array(self._form_numbers, dtype=np.uint32)
        records = {
            "seq": np.arange(len(order), dtype=np.uint64),
            "step": members.step[order],
            "micro_step": members.micro_step[order].astype(np.int32),
            "site": members.site[order].astype(np.uint32),
            "form": forms[members.plan[order]] if len(order) else np.zeros(0, np.uint32),
            **records,
            "segment": np.zeros(len(order), np.uint16),
        }
        self._settle_terms(records)
        return records

    def _settle_terms(self, records: dict[str, NDArray[Any]]) -> None:
        if "sketch" not in records:
            return
        roundoff = np.array([unit_roundoff(form.dtype) for form in self.forms])[records["form"]]
        found = find_reductions(records, self.plan_of_rows, self.plans, self.catalogue.sites, roundoff)
        self.reductions = found
        self._settled = settle_terms(records, found, self.plan_of_rows, self.plans)

    @property
    def plan_of_rows(self) -> NDArray[np.int64]:
        """The plan of each row of ``records``, as a position in ``plans``."""
        members, order = self._ordered
        return members.plan[order]

    @cached_property
    def _plan_forms(self) -> tuple[tuple[Form, ...], list[int]]:
        known: dict[Form, int] = {}
        numbers = []
        for plan in self.plans:
            kind = f"{NOT_KNOWN}{plan.reason}" if plan.reason else "dense"
            numbers.append(known.setdefault(Form(plan.dtype, plan.shape, kind), len(known)))
        return tuple(known), numbers

    @property
    def _form_numbers(self) -> list[int]:
        return self._plan_forms[1]

    @property
    def forms(self) -> tuple[Form, ...]:
        """The forms of wholes by number; of one that is not known, ``kind`` tells the reason."""
        return self._plan_forms[0]

    @cached_property
    def reasons(self) -> dict[int, str]:
        """Why a record has no numbers, by its row."""
        members, order = self._ordered
        failed = np.array([bool(plan.reason) for plan in self.plans], dtype=bool)
        rows = np.flatnonzero(failed[members.plan[order]]) if len(order) else order
        found = {row: f"{NOT_KNOWN}{self.plans[int(members.plan[order[row]])].reason}" for row in rows.tolist()}
        unsettled = [row for row, factor in self._settled.items() if factor != factor] if self.records else []
        return found | dict.fromkeys(unsettled, f"{NOT_KNOWN}{NOT_REDUCED}")

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps that have records."""
        return tuple(np.unique(self._grouped[0].step).tolist())

    @property
    def num_records(self) -> int:
        """How many records there are."""
        return len(self._grouped[0])

    @cached_property
    def differing(self) -> Differing:
        """The replicas that differ from what is kept of them."""
        return find_differing(self.ranks, *self._grouped)

    @property
    def replicas(self) -> Differing:
        """All replicas, each with what is kept of it."""
        return replicas_of(*self._grouped)

    @property
    def local_forms(self) -> list[Form]:
        """The forms of the ranks' own records, as ``members`` numbers them."""
        return self._all_forms[0]

    def describe(self, rank: int) -> str:
        """Names a rank with its place: ``3 (tp 1, dp 1)``."""
        place = ", ".join(f"{axis} {coordinate}" for axis, (coordinate, _) in self.meshes[rank].items())
        return f"{rank} ({place})" if place else str(rank)

    def member_tensor(self, member: int) -> NDArray[Any] | None:
        """Gives the values of one rank's record, a row of ``members``; None when they were not saved."""
        members = self._ordered[0]
        return self.ranks[int(members.rank[member])].tensor(int(members.row[member]))

    def member_bits(self, member: int) -> tuple[str, NDArray[np.uint8]] | None:
        """Gives format and exact bytes of one rank's values, a row of ``members``; None when they were not saved."""
        members = self._ordered[0]
        return self.ranks[int(members.rank[member])].tensor_bits(int(members.row[member]))

    @property
    def places(self) -> NDArray[np.int64]:
        """The row of ``records`` of each whole, by its number in ``members``."""
        order = self._ordered[1]
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        return place

    def reshape(self, shapes: Mapping[int, tuple[int, ...]]) -> None:
        """Tells the shapes of the other side's whole tensors by site; what was not known may be, then."""
        self._shapes = dict(shapes)
        for name in ("_grouped", "_ordered", "combiner", "records", "_plan_forms", "differing", "reasons"):
            self.__dict__.pop(name, None)

    def substitute(self, instead: Mapping[int, int], odd: Mapping[int, tuple[int, ...]]) -> None:
        """Lets differing replicas stand in for what was kept of them.

        Args:
            instead: Rows of ``members``: kept to replica.
            odd: The ranks whose replicas are wrong, by whole.
        """
        self._instead, self._odd = dict(instead), dict(odd)
        self.__dict__.pop("records", None)

    def _substituted(self, members: NDArray[np.int64]) -> NDArray[np.int64]:
        if not self._instead:
            return members
        table = np.arange(len(self._ordered[0].rank), dtype=np.int64)
        table[list(self._instead)] = list(self._instead.values())
        replaced: NDArray[np.int64] = table[members]
        return replaced

    def ranks_of(self, index: int) -> tuple[int, ...]:
        """Gives the ranks whose replicas of record ``index`` are wrong, where others' are not."""
        return self._odd.get(int(self.order[index]), ())

    # --- what a record was made from

    def whole(self, index: int) -> tuple[Plan, int]:
        """Gives the plan of record ``index``, and the row of ``members`` at which its members begin."""
        members, order = self._ordered
        whole = int(order[index])
        return self.plans[int(members.plan[whole])], int(members.starts[whole])

    def kept_members(self, index: int) -> tuple[Plan, list[int]]:
        """Gives the plan of record ``index``, and the rows of ``members`` that it is made of, in the plan's order."""
        plan, start = self.whole(index)
        members = [start + k.member for k in plan.kept]
        return plan, [self._instead.get(member, member) for member in members]

    def provenance(self, index: int) -> Provenance:
        """Says what record ``index`` was made from."""
        return provenance_of(self, index)

    def tensor(self, index: int) -> NDArray[Any] | None:
        """Gives the values of record ``index``, put together from its parts; None where one was not saved."""
        if self.records["tensor"][index] < 0:
            return None
        plan, members = self.kept_members(index)
        parts = [self._part(member, factor) for member, factor in zip(members, plan.undone, strict=True)]
        if any(part is None for part in parts):
            return None
        made = assemble(plan, [part for part in parts if part is not None])
        return made * self._settled[index] if index in self._settled else made

    def _part(self, member: int, undone: float) -> NDArray[Any] | None:
        values = self.member_tensor(member)
        return values if values is None or undone == 1.0 else values * undone

    def content_vectors(self, index: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]] | None:
        """Gives row and column sums of record ``index``'s content; None where they were not recorded."""
        plan, parts = self._read_parts(index, lambda rank, row: rank.content_vectors(row))
        return None if parts is None else assemble_vectors(plan, parts)

    def row_statistics(self, index: int) -> dict[str, NDArray[Any]] | None:
        """Gives the row statistics of record ``index``, put together from whole rows; None where there are none."""
        if "rows" not in self.records or self.records["rows"][index] < 0:
            return None
        plan, parts = self._read_parts(index, lambda rank, row: rank.row_statistics(row))
        return None if parts is None else assemble_rows(plan, parts)

    def _read_parts(self, index: int, read: Callable[[RankRun, int], Any]) -> tuple[Plan, list[Any] | None]:
        """Reads something of all kept parts of a record; None where a part lacks it."""
        plan, places = self.kept_members(index)
        members = self._ordered[0]
        parts = [read(self.ranks[int(members.rank[at])], int(members.row[at])) for at in places]
        return plan, None if any(part is None for part in parts) else parts

    def table(self) -> dict[str, NDArray[Any]]:
        """Gives the records with the names of their sites and forms in place of numbers."""
        return tables.named(self)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"<MergedRank {self.path}: {len(self.ranks)} ranks as one>"
