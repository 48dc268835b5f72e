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
        pairs = self.pairs
        self.steps, self.ranks, self.micro_steps = (
            [int(value) for value in np.unique(pairs[name])] for name in ("step", "rank", "micro_step")
        )
        self.severity = severities(pairs)
        self.backward = np.isin(pairs["direction"], BACKWARD)
        self.trees = tuple(_tree(pairs, side) for side in ("candidate", "reference"))
        self.nodes = tuple(
            _numbers(tree, pairs[f"{side}_node"], pairs[f"{side}_call"])
            for tree, side in zip(self.trees, ("candidate", "reference"), strict=True)
        )
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
    def haystacks(self) -> tuple[str, str]:
        """For each side: path and class of every node, one line each, in small letters, to be searched."""
        candidate, reference = (
            "\n".join(
                f"{path}\t{name}".replace("\n", " ").lower()
                for path, name in zip(tree.paths, tree.classes, strict=True)
            )
            + "\n"
            for tree in self.trees
        )
        return candidate, reference

    @cached_property
    def excess(self) -> NDArray[np.float64]:
        """Each row's error divided by its bound."""
        return excesses(self.pairs)

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
        chosen = np.flatnonzero(rows & (nodes > 0))
        own = np.zeros((len(tree), NOTHING), np.int64)
        np.add.at(own, (nodes[chosen], self.severity[chosen]), 1)
        worst_row = np.full(len(tree), -1, np.int64)
        order = chosen[np.lexsort((-np.nan_to_num(self.excess[chosen], nan=-1.0), self.severity[chosen]))][::-1]
        worst_row[nodes[order]] = order
        hits = np.zeros(len(tree), np.int64)
        passing = np.flatnonzero(kept & (nodes > 0))
        np.add.at(hits, nodes[passing], 1)
        if class_name:
            hits[np.array([name != class_name for name in tree.classes])] = 0
        return Marks(own, tree.roll_up(own), worst_row, tree.roll_up(hits) > 0)


def _tree(pairs: Mapping[str, NDArray[Any]], side: str) -> NodeTree:
    """Builds the hierarchy of one side from the rows in which it takes part."""
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
    seen = (
        Seen(path, str(class_name), NodeKind.OP if "/" in path else NodeKind.MODULE, float(when))
        for path, class_name, when in zip(names, classes.tolist(), first.tolist(), strict=True)
    )
    return build_tree(seen)


def _rank_of(column: NDArray[Any]) -> NDArray[np.float64]:
    return np.unique(column, return_inverse=True)[1].astype(np.float64) if len(column) else np.zeros(0)


def _is_state(pairs: Mapping[str, NDArray[Any]], rows: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.isin(pairs["role"][rows], ("parameter", "buffer"))


def _numbers(tree: NodeTree, paths: NDArray[np.object_], calls: NDArray[np.int64]) -> NDArray[np.int64]:
    """Gives the node of each row; -1 where the side has none."""
    names, codes = encode(paths)
    numbers = np.array([tree.number_of.get(name, -1) for name in names], np.int64)
    return np.where(calls >= 0, numbers[codes] if len(names) else -1, -1)


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
