"""Which nodes without a partner may be one: by what agrees of class, container, last name and shape of the output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.sites import NodeKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msprobe.visualizers.web.selection import PairIndex

#: Of how many nodes of a side suggestions are made.
_MOST_NODES = 400

#: What share of the four signs must agree.
_LEAST = 0.5


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Two nodes that may be one; ``signs`` agree, ``confidence`` is their share of all four."""

    candidate: int
    reference: int
    signs: tuple[str, ...]

    @property
    def confidence(self) -> float:
        """Gives the share of the signs that agree."""
        return len(self.signs) / 4


def suggest(index: PairIndex, candidates: Sequence[int], references: Sequence[int]) -> list[Suggestion]:
    """Pairs each node with the one that most agrees with it, where it is the best for that one too."""
    first, second = (
        {node: _signs(index, side, node) for node in nodes[:_MOST_NODES] if _is_module(index, side, node)}
        for side, nodes in enumerate((candidates, references))
    )
    found = [
        Suggestion(c, r, tuple(name for name, value in own.items() if value and value == other[name]))
        for c, own in first.items()
        for r, other in second.items()
    ]
    found.sort(key=lambda each: (-len(each.signs), each.candidate, each.reference))
    taken: tuple[set[int], set[int]] = (set(), set())
    chosen = []
    for each in found:
        if each.confidence >= _LEAST and each.candidate not in taken[0] and each.reference not in taken[1]:
            chosen.append(each)
            taken[0].add(each.candidate)
            taken[1].add(each.reference)
    return sorted(chosen, key=lambda each: (-each.confidence, each.candidate))


def _is_module(index: PairIndex, side: int, node: int) -> bool:
    tree = index.trees[side]
    return tree.kinds[node] is NodeKind.MODULE and bool(tree.paths[node])


def _signs(index: PairIndex, side: int, node: int) -> dict[str, Any]:
    """Gives what is compared; the container by its number on the candidate's side."""
    tree, pairs = index.trees[side], index.pairs
    parent = int(tree.parents[node])
    container = [parent] if side == 0 else index.partners[1].get(parent, [])
    rows = np.flatnonzero(index.nodes[side] == node)
    outputs = rows[(pairs["role"][rows] == "output") & (pairs["direction"][rows] == "forward")]
    shapes = pairs["candidate_shape" if side == 0 else "reference_shape"][outputs]
    return {
        "class": tree.classes[node],
        "container": container[0] + 1 if container else None,
        "name": tree.paths[node].rpartition(".")[2],
        "shape": frozenset(shapes.tolist()),
    }
