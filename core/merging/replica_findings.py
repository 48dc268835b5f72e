"""Say which replicas differ, judged as two runs would be: a fault in one rank, or rounding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.comparison import Finding
from msprobe.core.matching.nodes import NodePairs
from msprobe.core.matching.reasons import BY_NAME
from msprobe.core.matching.rows import RowPairs
from msprobe.core.matching.sites import SitePairs
from msprobe.core.merging.records import gather
from msprobe.core.records import RECORD_COLUMNS
from msprobe.core.verdicts.judging import judge
from msprobe.core.verdicts.sources import find_sources
from msprobe.core.verdicts.table import RankMatch, build_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.merging.replicas import Differing
    from msprobe.core.merging.view import MergedRank
    from msprobe.core.sites import Form
    from msprobe.core.verdicts.constants import Constants

Bar = Callable[[Iterable[int]], Iterable[int]]
#: How many of the ranks that differ are judged; what is wrong in more of them is said of these.
_MOST_RANKS = 8
_MEASURED = tuple(c.name for c in RECORD_COLUMNS if c.name not in ("site", "form", "seq", "step", "micro_step"))


class _Seen:
    """What one rank holds of tensors that others hold too. Reads like a ``RankRun``."""

    def __init__(self, merged: MergedRank, rows: NDArray[np.int64], wholes: NDArray[np.int64]) -> None:
        members = merged.members
        self._merged, self._rows = merged, rows
        self.nodes, self.sites, self.edges = merged.nodes, merged.sites, merged.edges
        self.forms: tuple[Form, ...] = tuple(merged.local_forms)
        self.facts: list[Any] = []
        self.events: list[Any] = []
        names = [name for name in _MEASURED if any(name in rank.records for rank in merged.ranks)]
        self.records: dict[str, NDArray[Any]] = {
            "seq": merged.places[wholes].astype(np.uint64),
            "site": members.site[wholes].astype(np.uint32),
            "form": members.form[rows].astype(np.uint32),
            "step": members.step[wholes],
            "micro_step": members.micro_step[wholes],
            **gather(merged.ranks, members, rows, names),
        }

    def tensor(self, index: int) -> NDArray[Any] | None:
        """Gives the values of a record; None when they were not saved."""
        return self._merged.member_tensor(int(self._rows[index]))


def replica_findings(name: str, merged: MergedRank, constants: Constants, bar: Bar) -> list[Finding]:
    """Says where ranks of one side (``name``) that must hold the same do not.

    A difference beyond rounding is told where it arises, with rank and axis; what follows from it is not.
    """
    differing = merged.differing
    if not len(differing):
        return []
    ranks = np.unique(merged.members.rank[differing.replica])
    judged_ranks = ranks[:_MOST_RANKS].tolist()
    matches = [_match(merged, differing, position) for position in judged_ranks]
    judged = judge(build_table(matches), constants, bar)
    found = []
    for source in find_sources(judged):
        position = judged_ranks[source.rank] if source.rank < len(judged_ranks) else 0
        other, axes = _partner(merged, differing, position)
        also = [merged.numbers[judged_ranks[rank]] for rank in source.ranks if rank != source.rank]
        more = f" (and rank{'s' if len(also) > 1 else ''} {', '.join(map(str, also))})" if also else ""
        found.append(
            Finding(
                "replica",
                f"Ranks of the {name} that must hold the same do not: rank {merged.describe(merged.numbers[position])}"
                f"{more} differs from rank {merged.describe(other)} along axis {axes}, first at the {source.site}, "
                f"step {source.step}: relative error {source.error:.1e}.",
            )
        )
    return found or [_within_rounding(name, merged, differing, ranks)]


def _within_rounding(name: str, merged: MergedRank, differing: Differing, ranks: NDArray[Any]) -> Finding:
    told = ", ".join(str(merged.numbers[position]) for position in ranks[:_MOST_RANKS].tolist())
    return Finding(
        "replica",
        f"{len(differing):,} of {differing.checked:,} replicas in the {name} differ in bits, none beyond rounding or "
        f"where it could be told from its inputs (ranks {told}), {_first(merged, differing)}.",
    )


def _first(merged: MergedRank, differing: Differing) -> str:
    """Words where replicas first differ."""
    members = merged.members
    whole = differing.whole
    order = np.lexsort((merged.places[whole], members.micro_step[whole], members.step[whole]))
    at = int(whole[order[0]])
    site = merged.sites.site(int(members.site[at]))
    node = site.node or "the model"
    place = f"{site.direction.value} {site.role.value} {site.argument} of {node}"
    return f"first at the {place}, step {int(members.step[at])}"


def _match(merged: MergedRank, differing: Differing, position: int) -> RankMatch:
    """Matches all that a rank holds of others' tensors with theirs."""
    pairs = merged.replicas
    own = np.flatnonzero(merged.members.rank[pairs.replica] == position)
    wholes = pairs.whole[own]
    seen = [_Seen(merged, rows[own], wholes) for rows in (pairs.replica, pairs.kept)]
    count = len(merged.sites)
    nodes = len(merged.nodes)
    numbers, rows = np.arange(count, dtype=np.int64), np.arange(len(own), dtype=np.int64)
    node_pairs = NodePairs(np.arange(nodes, dtype=np.int64), dict.fromkeys(range(nodes), BY_NAME))
    members = merged.members
    places = RowPairs(rows, rows, members.site[wholes], members.step[wholes], members.micro_step[wholes])
    index = np.unique(merged.members.rank[differing.replica]).tolist().index(position)
    return RankMatch(index, seen[0], seen[1], node_pairs, SitePairs(numbers, numbers, count), places)  # type: ignore[arg-type]


def _partner(merged: MergedRank, differing: Differing, position: int) -> tuple[int, str]:
    rows = np.flatnonzero(merged.members.rank[differing.replica] == position)
    kept = int(merged.members.rank[differing.kept[rows[0]]])
    return merged.numbers[kept], str(differing.axes[rows[0]])
