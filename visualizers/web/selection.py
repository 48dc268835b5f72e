"""What of a comparison the reader looks at: one step, rank and micro-step, some directions, some verdicts.

Texts of the pair table are numbered once; a selection is then a few comparisons of integer columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.sites import NodeKind
from msprobe.visualizers.marks import MARKS
from msprobe.visualizers.rows import encode, excesses, severities
from msprobe.visualizers.web.searching import Haystack, haystack
from msprobe.visualizers.web.trees import NodeTree, Seen, build_tree

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.comparison import Comparison

#: The severity of a node without a row in the selection.
NOTHING = len(MARKS)

#: Directions that run from the loss back.
BACKWARD = ("backward", "reduce", "update")


@dataclass(frozen=True, slots=True)
class Selection:
    """What is looked at; None stands for all. Filters name verdicts, classes and number formats."""

    step: int | None = None
    rank: int | None = None
    micro_step: int | None = None
    #: "forward", "backward" (all that runs back from the loss) or None.
    direction: str | None = None
    verdicts: frozenset[str] = frozenset()
    class_name: str = ""
    dtype: str = ""


@dataclass(frozen=True)
class Marks:
    """What stands at the nodes of one side: counts of rows by severity, own and with everything below."""

    own: NDArray[np.int64]
    rolled: NDArray[np.int64]
    #: Row of the worst pair at the node itself; -1 without one.
    worst_row: NDArray[np.int64]
    #: Whether the filters keep the node or anything below it.
    kept: NDArray[np.bool_]

    def worst(self, node: int, *, below: bool = True) -> int:
        """Gives the severity of the worst row at a node, and below it."""
        counts = (self.rolled if below else self.own)[node]
        found = np.flatnonzero(counts)
        return int(found[0]) if len(found) else NOTHING


class PairIndex:
    """The pairs of a comparison, ready to be selected from."""

    def __init__(self, comparison: Comparison) -> None:
        self.pairs: Mapping[str, NDArray[Any]] = comparison.pairs
        self.records = comparison.records
        pairs = self.pairs
        self.steps, self.ranks, self.micro_steps = (
            [int(value) for value in np.unique(pairs[name])] for name in ("step", "rank", "micro_step")
        )
        self.severity = severities(pairs)
        self.backward = np.isin(pairs["direction"], BACKWARD)
        sides = [_side(pairs, side) for side in ("candidate", "reference")]
        self.trees = tuple(tree for tree, _ in sides)
        #: The node of each row on either side; -1 where the side has none.
        self.nodes = tuple(nodes for _, nodes in sides)
        self._flows: dict[tuple[int, int, bool], NDArray[np.int64]] = {}
        self._cache: dict[Selection, tuple[NDArray[np.bool_], tuple[Marks, Marks]]] = {}

    @cached_property
    def partners(self) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
        """For each side: the numbers of the nodes that a node is paired with, on the other side."""
        both = (self.nodes[0] > 0) & (self.nodes[1] > 0)
        size = len(self.trees[1])
        keys = np.unique(self.nodes[0][both] * size + self.nodes[1][both])
        forth: dict[int, list[int]] = {0: [0]}
        back: dict[int, list[int]] = {0: [0]}
        for key in keys.tolist():
            candidate, reference = divmod(key, size)
            forth.setdefault(candidate, []).append(reference)
            back.setdefault(reference, []).append(candidate)
        _pair_containers(self.trees, forth, back)
        return forth, back

    @cached_property
    def pair_numbers(self) -> NDArray[np.int64]:
        """All pairs of nodes, containers too: numbers of the candidate's and of the reference's, shape (n, 2)."""
        pairs = [(c, r) for c, partners in self.partners[0].items() for r in partners]
        return np.array(pairs, np.int64).reshape(-1, 2)

    @cached_property
    def haystacks(self) -> tuple[Haystack, Haystack]:
        """For each side: path and class of every node, to be searched."""
        candidate = haystack(self.trees[0])
        same = self.trees[0].paths == self.trees[1].paths and self.trees[0].classes == self.trees[1].classes
        return candidate, candidate if same else haystack(self.trees[1])

    def flow(self, side: int, rank: int, *, backward: bool) -> NDArray[np.int64]:
        """Gives the data-flow edges between nodes of one side, as numbers of source and target; none of closed runs."""
        if self.records is None:
            return np.empty((0, 2), np.int64)
        if (side, rank, backward) not in self._flows:
            paths, edges = self.records.flow(side, rank, backward=backward)
            numbers = np.array([self.trees[side].number_of.get(path, -1) for path in paths], np.int64)
            found = numbers[edges] if len(edges) else edges
            self._flows[side, rank, backward] = found[(found > 0).all(axis=1)]
        return self._flows[side, rank, backward]

    def prepare_search(self) -> None:
        """Makes ready what a search needs, so that the first is as quick as all others."""
        _ = self.haystacks, self.pair_numbers

    @cached_property
    def excess(self) -> NDArray[np.float64]:
        """Each row's error divided by its bound."""
        return excesses(self.pairs)

    @cached_property
    def mildest_first(self) -> NDArray[np.int64]:
        """All rows, the mildest first: by severity, in it by how far the error exceeds its bound."""
        return np.lexsort((-np.nan_to_num(self.excess, nan=-1.0), self.severity))[::-1]

    def rows(self, selection: Selection) -> NDArray[np.bool_]:
        """Tells which rows are of the selected step, rank, micro-step and direction; filters are left aside."""
        mask = np.ones(len(self.severity), dtype=bool)
        for name in ("step", "rank", "micro_step"):
            wanted = getattr(selection, name)
            if wanted is not None:
                mask &= self.pairs[name] == wanted
        if selection.direction is not None:
            mask &= self.backward == (selection.direction == "backward")
        return mask

    def marks(self, selection: Selection) -> tuple[Marks, Marks]:
        """Counts what stands at each node of both sides."""
        if selection not in self._cache:
            rows = self.rows(selection)
            kept = rows & self._passes(selection)
            first, second = (self._mark(side, rows, kept, selection.class_name) for side in (0, 1))
            if len(self._cache) >= 16:
                self._cache.pop(next(iter(self._cache)))
            self._cache[selection] = rows, (first, second)
        return self._cache[selection][1]

    def _passes(self, selection: Selection) -> NDArray[np.bool_]:
        mask = np.ones(len(self.severity), dtype=bool)
        if selection.verdicts:
            mask &= np.isin(self.severity, [i for i, mark in enumerate(MARKS) if mark.verdict in selection.verdicts])
        if selection.dtype:
            mask &= (self.pairs["candidate_dtype"] == selection.dtype) | (
                self.pairs["reference_dtype"] == selection.dtype
            )
        return mask

    def _mark(self, side: int, rows: NDArray[np.bool_], kept: NDArray[np.bool_], class_name: str) -> Marks:
        tree, nodes = self.trees[side], self.nodes[side]
        here = rows & (nodes > 0)
        chosen = np.flatnonzero(here)
        counts = np.bincount(nodes[chosen] * NOTHING + self.severity[chosen], minlength=len(tree) * NOTHING)
        own = counts.reshape(len(tree), NOTHING)
        worst_row = np.full(len(tree), -1, np.int64)
        order = self.mildest_first[here[self.mildest_first]]
        worst_row[nodes[order]] = order
        hits = np.bincount(nodes[kept & here], minlength=len(tree))
        if class_name:
            hits[np.array([name != class_name for name in tree.classes])] = 0
        return Marks(own, tree.roll_up(own), worst_row, tree.roll_up(hits) > 0)


def _side(pairs: Mapping[str, NDArray[Any]], side: str) -> tuple[NodeTree, NDArray[np.int64]]:
    """Builds the hierarchy of one side from the rows in which it takes part, and gives the node of each row."""
    present = np.flatnonzero(pairs[f"{side}_call"] >= 0)
    names, codes = encode(pairs[f"{side}_node"][present])
    order = pairs["order" if side == "candidate" else "reference_order"][present].astype(np.float64)
    # The first step and rank say in which order nodes run; what only later ones hold comes behind.
    late = _rank_of(pairs["step"][present]) + _rank_of(pairs["rank"][present]) + _rank_of(pairs["micro_step"][present])
    order = np.where(order < 0, np.inf, order + late * (float(order.max(initial=0)) + 1))
    order[_is_state(pairs, present)] += 0.5
    first = np.full(len(names), np.inf)
    np.minimum.at(first, codes, order)
    classes = np.full(len(names), "", dtype=object)
    classes[codes] = pairs[f"{side}_class"][present]
    kinds = [NodeKind.OP if "/" in path else NodeKind.MODULE for path in names]
    tree = build_tree(map(Seen, names, map(str, classes.tolist()), kinds, first.tolist()))
    nodes = np.full(len(pairs["step"]), -1, np.int64)
    if names:
        nodes[present] = np.array([tree.number_of[name] for name in names], np.int64)[codes]
    return tree, nodes


def _rank_of(column: NDArray[Any]) -> NDArray[np.float64]:
    return np.unique(column, return_inverse=True)[1].astype(np.float64) if len(column) else np.zeros(0)


def _is_state(pairs: Mapping[str, NDArray[Any]], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.isin(pairs["role"][rows], ("parameter", "buffer"))


def _pair_containers(trees: tuple[NodeTree, ...], forth: dict[int, list[int]], back: dict[int, list[int]]) -> None:
    """Pairs containers that have no rows of their own, by name, or by what is paired inside them."""
    candidate, reference = trees
    for node in range(len(candidate) - 1, 0, -1):
        if node in forth or candidate.ends[node] == node + 1:
            continue
        named = reference.number_of.get(candidate.paths[node])
        owners = {int(reference.parents[p]) for child in candidate.children(node) for p in forth.get(child, ())}
        owners = {owner for owner in owners if owner > 0 and owner not in back}
        partner = named if named is not None and named not in back else owners.pop() if len(owners) == 1 else None
        if partner is not None:
            forth[node], back[partner] = [partner], [node]
