"""Where the rows of a comparison come from: the records of both sides, for as long as the runs are open."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.merging.view import MergedRank
from msprobe.core.sites import Direction
from msprobe.core.verdicts.ranks import merged_below
from msprobe.core.verdicts.table import DIRECTIONS, row_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.matching.views import RankView
    from msprobe.core.merging.provenance import Provenance
    from msprobe.core.verdicts.table import PairTable, RankMatch


_FORWARD = (Direction.FORWARD, Direction.RECOMPUTE)


@dataclass(frozen=True)
class Origin:
    """What the record of one side of a pair was made from; ``odd`` are ranks whose replicas are wrong."""

    provenance: Provenance
    odd: tuple[int, ...]
    #: Where each rank stands on the mesh, in words.
    places: dict[int, str]


@dataclass(frozen=True)
class PairRecords:
    """The records behind ``Comparison.pairs``, whose rows are numbered as there.

    ``match`` is each row's place in ``matches``; ``rows`` are the record numbers in the views of candidate and
    reference, -1 where a side has none.
    """

    matches: tuple[RankMatch, ...]
    match: NDArray[np.int64]
    rows: tuple[NDArray[np.int64], NDArray[np.int64]]

    def view(self, side: int, pair: int) -> RankView:
        """Gives what candidate (0) or reference (1) of a pair was read from."""
        match = self.matches[int(self.match[pair])]
        return match.reference if side else match.candidate

    def stack(self, side: int, pair: int) -> tuple[str, ...]:
        """Gives the call stack of one side, ``file:line function``, innermost last; empty where none was recorded."""
        index = int(self.rows[side][pair])
        if index < 0:
            return ()
        view, index = _origin(self.view(side, pair), index)
        if isinstance(view, MergedRank):
            for part in view.provenance(index).parts:
                found = _stack_of(view.ranks[view.numbers.index(part.rank)], part.row)
                if found:
                    return found
            return ()
        return _stack_of(view, index)

    def origin(self, side: int, pair: int) -> Origin | None:
        """Says which ranks one side was made from; None where it was recorded by one rank, or is absent."""
        index = int(self.rows[side][pair])
        if index < 0 or merged_below(self.view(side, pair)) is None:
            return None
        view, index = _origin(self.view(side, pair), index)
        assert isinstance(view, MergedRank)
        found = view.provenance(index)
        places = {part.rank: view.describe(part.rank) for part in found.parts}
        return Origin(found, view.ranks_of(index), places)

    def flow(self, side: int, rank: int, *, backward: bool) -> tuple[list[str], NDArray[np.int64]]:
        """Gives the paths of one side's nodes, and the data-flow edges between them as pairs of places, shape (n, 2).

        Edges inside one node are left out; ``backward`` gives those into sites that run back from the loss instead of
        those into sites of the forward pass. ``rank`` is as in the column ``rank``; one that is not there has none.
        """
        match = next((match for match in self.matches if match.rank == rank), None)
        if match is None:
            return [], np.empty((0, 2), np.int64)
        view = match.reference if side else match.candidate
        edges = np.asarray(view.edges, np.int64).reshape(-1, 2)
        forward = np.isin(view.sites.direction, [DIRECTIONS.index(d.value) for d in _FORWARD])
        edges = edges[(edges >= 0).all(axis=1)]
        edges = edges[forward[edges[:, 1]] != backward]
        nodes = np.asarray(view.sites.node, np.int64)[edges].reshape(-1, 2)
        return [node.path for node in view.nodes], np.unique(nodes[nodes[:, 0] != nodes[:, 1]], axis=0)


def pair_records(table: PairTable) -> PairRecords:
    """Keeps the records of a table in the order of ``Comparison.pairs``."""
    order = row_order(table)
    place = {match.rank: number for number, match in enumerate(table.matches)}
    ranks, inverse = np.unique(table.rank[order], return_inverse=True)
    numbers = np.array([place[rank] for rank in ranks.tolist()], np.int64)
    match = numbers[inverse] if len(ranks) else np.zeros(0, np.int64)
    return PairRecords(table.matches, match, (table.candidate.row[order], table.reference.row[order]))


def _origin(view: RankView, index: int) -> tuple[RankView, int]:
    """Follows a record to the view that it was recorded in, or merged in."""
    while (below := getattr(view, "below", None)) is not None and not isinstance(view, MergedRank):
        view, index = below, view.origin(index)  # type: ignore[attr-defined]
    return view, index


def _stack_of(view: RankView, index: int) -> tuple[str, ...]:
    stacks: list[tuple[str, ...]] = getattr(view, "stacks", [])
    number = int(view.sites.stack[int(view.records["site"][index])])
    return tuple(stacks[number]) if 0 <= number < len(stacks) else ()
