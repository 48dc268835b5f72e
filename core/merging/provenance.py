"""What a merged record was made from, and which of its parts is the odd one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.merging.assembling import assemble
from msprobe.core.merging.plans import JOIN

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.merging.view import MergedRank
    from msprobe.core.sites import Form


@dataclass(frozen=True, slots=True)
class Part:
    """One record that a merged one was made from: who recorded it, where, and its use."""

    rank: int
    #: The rank's segment (a position in its list of starts), and the row of its records.
    segment: int
    row: int
    #: "kept" or "replica".
    use: str
    form: Form


@dataclass(frozen=True, slots=True)
class Provenance:
    """What a merged record was made from, and how: ``alone``, ``join``, ``sum``, ``mean``; or why it is not known."""

    how: str
    parts: tuple[Part, ...]
    reason: str = ""

    def words(self) -> str:
        """Words it: ``join of ranks 0, 1; replicas on ranks 2, 3``."""
        if self.reason:
            return f"not known: {self.reason}"
        kept, replicas = ([part.rank for part in self.parts if part.use == use] for use in ("kept", "replica"))
        how = {"alone": "taken from", "join": "join of", "sum": "sum of", "mean": "mean of"}[self.how]
        told = f"{how} {_ranks(kept)}"
        return f"{told}; replicas on {_ranks(replicas)}" if replicas else told


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def provenance_of(merged: MergedRank, index: int) -> Provenance:
    """Says what record ``index`` was made from."""
    members = merged.members
    plan, start = merged.whole(index)
    end = start + int(members.sizes[int(merged.order[index])])
    kept = {k.member for k in plan.kept}
    parts = tuple(
        Part(
            merged.numbers[int(members.rank[at])],
            int(merged.ranks[int(members.rank[at])].records["segment"][int(members.row[at])]),
            int(members.row[at]),
            "kept" if at - start in kept else "replica",
            merged.local_forms[int(members.form[at])],
        )
        for at in range(start, end)
    )
    return Provenance(plan.how, parts, plan.reason)


def ranks_that_differ(merged: MergedRank, index: int, other: NDArray[Any], bound: float) -> tuple[int, ...]:
    """Gives the ranks whose parts of a record are further from ``other`` than ``bound``, relative to these parts.

    Empty where all parts are, where none is, or where parts were not saved or have another shape.
    """
    own = merged.tensor(index)
    plan, start = merged.whole(index)
    if own is None or own.shape != other.shape or len(plan.kept) < 2 or plan.how != JOIN:
        return ()
    members = merged.members
    shapes = [merged.local_forms[int(members.form[start + k.member])].shape for k in plan.kept]
    owner = assemble(plan, [np.full(shape, part, dtype=np.int64) for part, shape in enumerate(shapes)]).reshape(-1)
    wide = np.complex128 if own.dtype.kind == "c" else np.float64
    apart = np.abs(own.astype(wide) - other.astype(wide)).reshape(-1)
    apart[~np.isfinite(apart)] = np.inf
    size = np.abs(other.astype(wide)).reshape(-1)
    errors, norms = (np.sqrt(np.bincount(owner, x * x, minlength=len(shapes))) for x in (apart, size))
    wrong = np.flatnonzero(errors > bound * norms)
    if len(wrong) == len(shapes):
        return ()
    return tuple(sorted(merged.numbers[int(members.rank[start + plan.kept[part].member])] for part in wrong.tolist()))
