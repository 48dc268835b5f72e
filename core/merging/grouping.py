"""Which records of all ranks are parts of one whole, and by which plan they become it. All columns, no objects.

Records belong together that are of one site of the whole model, step and micro-step, and the same time that a rank saw
them there. How a group becomes a whole depends only on the ranks, forms and kind of site in it, so each combination is
decided once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.grouping import group_numbers
from msprobe.core.merging.plans import Plan
from msprobe.core.mixing import keys

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.merging.identity import WholeCatalogue
    from msprobe.core.run.reader import RankRun

_SEED_MEMBER, _SEED_KIND = 0x3F84D5B5B5470917, 0x9216D5D98979FB1B


@dataclass(frozen=True)
class Members:
    """The records of all ranks, sorted by whole and rank; ``starts`` is where each whole begins.

    ``rank`` is a position in the list of ranks, ``row`` a row of that rank's records, ``form`` a number in the list of
    all forms. One entry for each whole: ``site``, ``step``, ``micro_step``, ``plan``.
    """

    rank: NDArray[np.int32]
    row: NDArray[np.int64]
    form: NDArray[np.int32]
    starts: NDArray[np.int64]
    site: NDArray[np.int64]
    step: NDArray[np.int64]
    micro_step: NDArray[np.int64]
    plan: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many records each whole is made of."""
        return np.diff(self.starts, append=len(self.rank))


#: Makes the plan of a group: kind of its site, positions of its ranks, numbers of its forms.
MakePlan = Callable[[int, Sequence[int], Sequence[int]], Plan]


def group_members(
    ranks: Sequence[RankRun],
    catalogue: WholeCatalogue,
    forms: Sequence[NDArray[np.int64]],
    kinds: NDArray[np.int64],
    make: MakePlan,
) -> tuple[Members, list[Plan]]:
    """Groups the records of all ranks and plans each group.

    Args:
        ranks: What each rank recorded.
        catalogue: The whole model's nodes and sites.
        forms: For each rank, the number of each of its forms in the list of all.
        kinds: A number for each site of the whole model; sites of one number are planned alike.
        make: Makes a plan.
    """
    columns = [_columns(position, rank, catalogue, forms[position]) for position, rank in enumerate(ranks)]
    rank, row, site, step, micro, seen, form = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    group = group_numbers(step, micro, site, seen)
    order = np.lexsort((rank, group))
    rank, row, form, group = rank[order], row[order], form[order], group[order]
    starts = np.flatnonzero(np.diff(group, prepend=-1)).astype(np.int64)
    firsts = order[starts]
    signature = _signatures(rank, form, starts) + keys(kinds[site[firsts]].astype(np.uint64), _SEED_KIND)
    _, shown, plan = np.unique(signature, return_index=True, return_inverse=True)
    members = Members(
        rank.astype(np.int32), row, form.astype(np.int32), starts, site[firsts], step[firsts], micro[firsts], plan
    )
    ends = starts + members.sizes
    plans = [
        make(
            int(kinds[members.site[g]]),
            members.rank[starts[g] : ends[g]].tolist(),
            members.form[starts[g] : ends[g]].tolist(),
        )
        for g in shown.tolist()
    ]
    return members, plans


def _columns(
    position: int, rank: RankRun, catalogue: WholeCatalogue, forms: NDArray[np.int64]
) -> tuple[NDArray[np.int64], ...]:
    records = rank.records
    site = catalogue.site_numbers[position][records["site"]]
    rows = np.flatnonzero(~catalogue.boundary[site]) if len(site) else np.zeros(0, dtype=np.int64)
    site = site[rows]
    step, micro = (records[name][rows].astype(np.int64) for name in ("step", "micro_step"))
    seen = _occurrences(step, micro, site)
    form = forms[records["form"][rows]]
    return np.full(len(rows), position, dtype=np.int64), rows, site, step, micro, seen, form


def _occurrences(*columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts, for each row, the earlier rows that are equal in all columns."""
    groups = group_numbers(*columns)
    order = np.argsort(groups, kind="stable")
    changed = np.diff(groups[order], prepend=-1) != 0
    starts = np.maximum.accumulate(np.where(changed, np.arange(len(order)), 0))
    counts = np.empty(len(order), dtype=np.int64)
    counts[order] = np.arange(len(order)) - starts
    return counts


def _signatures(rank: NDArray[np.int64], form: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Gives a word for each group that is equal where the members' ranks and forms are: a sum of mixed words."""
    if not len(starts):
        return np.zeros(0, dtype=np.uint64)
    words = keys((rank.astype(np.uint64) << np.uint64(32)) + form.astype(np.uint64), _SEED_MEMBER)
    signatures: NDArray[np.uint64] = np.add.reduceat(words, starts)
    return signatures
