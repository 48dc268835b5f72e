"""Pair the nodes of two graphs: by the user's mapping, by name, by content, by structure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.matching.names import normalise, split_operator
from msprobe.core.sites import Node, NodeKind

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from numpy.typing import NDArray

    from msprobe.core.matching.mapping import Mapping


@dataclass(frozen=True, slots=True)
class Reason:
    """How two nodes came to be paired, and how sure that is (0 to 1)."""

    text: str
    confidence: float


BY_MAPPING = Reason("mapping", 1.0)
BY_NAME = Reason("name", 1.0)
BY_NORMALISED_NAME = Reason("name without wrappers", 0.98)
BY_CONTENT = Reason("equal parameters", 0.9)
BY_CHILDREN = Reason("their children are paired", 0.85)
BY_STRUCTURE = Reason("class and order inside paired parents", 0.6)


@dataclass
class NodePairs:
    """The pairing of nodes: for each candidate node the index of its partner, or -1; and why.

    Nodes that the mapping ignores are in ``ignored_candidate`` / ``ignored_reference``: they are no rows at all.
    """

    partner: NDArray[np.int64]
    reasons: dict[int, Reason] = field(default_factory=dict)
    ignored_candidate: set[int] = field(default_factory=set)
    ignored_reference: set[int] = field(default_factory=set)


class _Matcher:
    """Pairs step by step; a node that has a partner keeps it."""

    def __init__(self, candidate: Sequence[Node], reference: Sequence[Node]) -> None:
        self.candidate, self.reference = candidate, reference
        self.pairs = NodePairs(np.full(len(candidate), -1, dtype=np.int64))
        self.taken = np.zeros(len(reference), dtype=bool)
        self.by_path = {node.path: index for index, node in enumerate(reference)}
        self.by_normal_path = _unique({index: normalise(node.path) for index, node in enumerate(reference)})

    def pair(self, candidate: int, reference: int, reason: Reason) -> None:
        if self.pairs.partner[candidate] < 0 and not self.taken[reference]:
            self.pairs.partner[candidate] = reference
            self.pairs.reasons[candidate] = reason
            self.taken[reference] = True

    def free_candidates(self) -> list[int]:
        ignored = self.pairs.ignored_candidate
        return [int(i) for i in np.flatnonzero(self.pairs.partner < 0) if int(i) not in ignored]

    def by_mapping(self, mapping: Mapping) -> None:
        for index, node in enumerate(self.candidate):
            found = mapping.translate(normalise(node.path))
            if found is None:
                continue
            if found.rule.ignores:
                self.pairs.ignored_candidate.add(index)
                continue
            partner = self.by_path.get(found.path, self.by_normal_path.get(found.path))
            if partner is not None:
                self.pair(index, partner, BY_MAPPING)
        for index, node in enumerate(self.reference):
            found = mapping.translate(normalise(node.path))
            if found is not None and found.rule.ignores:
                self.pairs.ignored_reference.add(index)

    def by_names(self) -> None:
        for index in self.free_candidates():
            partner = self.by_path.get(self.candidate[index].path)
            if partner is not None:
                self.pair(index, partner, BY_NAME)
        for index in self.free_candidates():
            partner = self.by_normal_path.get(normalise(self.candidate[index].path))
            if partner is not None:
                self.pair(index, partner, BY_NORMALISED_NAME)

    def by_content(self, candidate: dict[int, Hashable], reference: dict[int, Hashable]) -> None:
        free = set(self.free_candidates())
        owners = _unique({index: key for index, key in reference.items() if not self.taken[index]})
        for key, index in _unique({i: k for i, k in candidate.items() if i in free}).items():
            if key in owners:
                self.pair(index, owners[key], BY_CONTENT)

    def by_children(self) -> None:
        """Pairs containers all of whose paired children have partners in one container; deepest first."""
        parents_c, parents_r = _parent_indices(self.candidate), _parent_indices(self.reference)
        votes: dict[int, set[int]] = defaultdict(set)
        for child in sorted(range(len(self.candidate)), key=lambda i: -self.candidate[i].path.count(".")):
            parent, partner = parents_c[child], int(self.pairs.partner[child])
            if child in votes and partner < 0 and len(votes[child]) == 1:
                (owner,) = votes[child]
                self.pair(child, owner, BY_CHILDREN)
                partner = int(self.pairs.partner[child])
            if parent >= 0 and partner >= 0 and parents_r[partner] >= 0:
                votes[parent].add(parents_r[partner])

    def by_structure(self) -> None:
        """Aligns the unpaired modules inside paired parents as sequences of classes, from the top down."""
        children_c, children_r = _children(self.candidate), _children(self.reference)
        for parent in sorted(children_c, key=lambda i: self.candidate[i].path.count(".")):
            partner = int(self.pairs.partner[parent])
            if partner < 0:
                continue
            left = [
                i for i in children_c[parent] if self.pairs.partner[i] < 0 and i not in self.pairs.ignored_candidate
            ]
            right = [i for i in children_r.get(partner, []) if not self.taken[i]]
            classes_left = [self.candidate[i].class_name for i in left]
            classes_right = [self.reference[i].class_name for i in right]
            for block in SequenceMatcher(None, classes_left, classes_right, autojunk=False).get_matching_blocks():
                for offset in range(block.size):
                    self.pair(left[block.a + offset], right[block.b + offset], BY_STRUCTURE)

    def operators_of_paired_modules(self) -> None:
        """Pairs operators of one name inside paired modules."""
        modules = {node.path: index for index, node in enumerate(self.candidate) if node.kind is NodeKind.MODULE}
        for index in self.free_candidates():
            module, operator = split_operator(self.candidate[index].path)
            owner = modules.get(module)
            if not operator or owner is None or self.pairs.partner[owner] < 0:
                continue
            partner = self.by_path.get(f"{self.reference[int(self.pairs.partner[owner])].path}/{operator}")
            if partner is not None:
                self.pair(index, partner, self.pairs.reasons[owner])


def match_nodes(
    candidate: Sequence[Node],
    reference: Sequence[Node],
    *,
    mapping: Mapping | None = None,
    candidate_content: dict[int, Hashable] | None = None,
    reference_content: dict[int, Hashable] | None = None,
) -> NodePairs:
    """Pairs the nodes of two graphs.

    In order: the mapping; equal names; names without wrapper segments; equal parameters (``*_content`` maps a node to
    a key of its parameters' content, used only where it is unique on both sides); containers by their children; class
    and order inside paired parents. Equal names go before equal content: weights that were loaded into the wrong layer
    are a fault to be found, not a renaming to be followed.
    """
    matcher = _Matcher(candidate, reference)
    if mapping is not None:
        matcher.by_mapping(mapping)
    matcher.by_names()
    if candidate_content and reference_content:
        matcher.by_content(candidate_content, reference_content)
        matcher.by_children()
    matcher.by_structure()
    matcher.operators_of_paired_modules()
    return matcher.pairs


def _unique(keys: dict[int, Hashable]) -> dict[Hashable, int]:
    owners: dict[Hashable, int] = {}
    twice: set[Hashable] = set()
    for index, key in keys.items():
        if key in owners:
            twice.add(key)
        owners[key] = index
    return {key: index for key, index in owners.items() if key not in twice}


def _parent_indices(nodes: Sequence[Node]) -> list[int]:
    index = {node.path: i for i, node in enumerate(nodes)}
    return [index.get(node.parent, -1) if node.parent is not None else -1 for node in nodes]


def _children(nodes: Sequence[Node]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for child, parent in enumerate(_parent_indices(nodes)):
        if parent >= 0 and nodes[child].kind is NodeKind.MODULE:
            found[parent].append(child)
    return found
