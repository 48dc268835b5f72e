"""On which ranks a source sits: not all of them, or one part of the whole model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.merging.provenance import ranks_that_differ
from msprobe.core.merging.view import MergedRank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msprobe.core.matching.views import RankView
    from msprobe.core.verdicts.table import PairTable, RankMatch

#: How many ranks are named one by one.
_NAMED = 4


class RanksToBlame:
    """Finds the ranks that a source sits on, where it is not all of them."""

    def __init__(self, table: PairTable) -> None:
        self._table = table
        self._matches = {match.rank: match for match in table.matches}

    def ranks(self, rows: Sequence[int], bound: float) -> tuple[int, ...]:
        """Gives the global ranks on which the rows of a source differ; empty where it is all, or cannot be told.

        ``bound`` is the relative error that is explained at the first row.
        """
        if len(self._matches) > 1:
            found = {int(self._table.rank[row]) for row in rows}
            return tuple(sorted(found)) if len(found) < len(self._matches) else ()
        return self._parts(next(iter(self._matches.values())), rows[0], bound)

    def _parts(self, match: RankMatch, row: int, bound: float) -> tuple[int, ...]:
        view, index = match.candidate, int(self._table.candidate.row[row])
        merged = merged_below(view)
        if index < 0 or merged is None:
            return ()
        while view is not merged:
            view, index = view.below, view.origin(index)  # type: ignore[attr-defined]
        odd = merged.ranks_of(index)
        if odd:
            return odd
        reference = match.reference.tensor(int(self._table.reference.row[row]))
        if reference is None:
            return ()
        with np.errstate(invalid="ignore", over="ignore"):
            return ranks_that_differ(merged, index, reference, bound if np.isfinite(bound) else 0.0)

    def words(self, ranks: Sequence[int]) -> str:
        """Words where a source sits: `` on rank 3 (dp 1, tp 1) only``; "" for no ranks."""
        if not ranks:
            return ""
        named = [self._place(rank) for rank in ranks[:_NAMED]]
        more = f" and {len(ranks) - _NAMED} more" if len(ranks) > _NAMED else ""
        return f" on rank{'s' if len(ranks) > 1 else ''} {', '.join(named)}{more} only"

    def _place(self, rank: int) -> str:
        match = self._matches.get(rank) or next(iter(self._matches.values()))
        merged = merged_below(match.candidate)
        if merged is not None:
            return merged.describe(rank)
        return f"{rank} ({match.place})" if match.place else str(rank)


def merged_below(view: RankView) -> MergedRank | None:
    """Gives the merged ranks that a view is made of; None where it is of one rank."""
    while not isinstance(view, MergedRank):
        below = getattr(view, "below", None)
        if below is None:
            return None
        view = below
    return view
