"""Pair the nodes of two graphs: by the user's mapping, by name, by content, by structure."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.matching.names import normalise, split_operator
from msprobe.core.matching.reasons import (
    BY_CLASS,
    BY_CONTENT,
    BY_NAME,
    BY_NORMALISED_NAME,
    BY_RELATIVE_NAME,
    BY_STRUCTURE,
    Reason,
)
from msprobe.core.sites import Node, NodeKind

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from numpy.typing import NDArray

    from msprobe.core.matching.combined import NodeGroup


@dataclass
class NodePairs:
    """The pairing of nodes: for each candidate node the index of its partner, or -1; and why.

    Nodes that the mapping ignores are in ``ignored_candidate`` / ``ignored_reference``: they are no rows at all.
    ``groups`` are nodes of a side that together are one node of the other; their members have no partner themselves.
    """

    partner: NDArray[np.int64]
    reasons: dict[int, Reason] = field(default_factory=dict)
    ignored_candidate: set[int] = field(default_factory=set)
    ignored_reference: set[int] = field(default_factory=set)
    groups: list[NodeGroup] = field(default_factory=list)


class Matcher:
    """Pairs step by step; a node that has a partner, or is a part of a group, keeps it."""

    def __init__(self, candidate: Sequence[Node], reference: Sequence[Node]) -> None:
        self.candidate, self.reference = candidate, reference
        self.pairs = NodePairs(np.full(len(candidate), -1, dtype=np.int64))
        self.taken = np.zeros(len(reference), dtype=bool)
        self.grouped = np.zeros(len(candidate), dtype=bool)
        self.by_path = {node.path: index for index, node in enumerate(reference)}
        self.by_normal_path = _unique({index: normalise(node.path) for index, node in enumerate(reference)})
        self.children = (_children(candidate), _children(reference))
        self.parents = (_parent_indices(candidate), _parent_indices(reference))
        self._apart: dict[int, set[int]] = {}

    # -- what is paired

    def keep_apart(self, candidates: Iterable[int], references: Iterable[int]) -> None:
        """Forbids that any of these nodes be paired with any of those."""
        forbidden = set(references)
        for candidate in candidates:
            self._apart.setdefault(candidate, set()).update(forbidden)

    def pair(self, candidate: int, reference: int, reason: Reason) -> bool:
        """Pairs two nodes that are both free and not kept apart, and tells whether they were."""
        if not self.is_free(candidate) or self.taken[reference] or reference in self._apart.get(candidate, ()):
            return False
        self.pairs.partner[candidate] = reference
        self.pairs.reasons[candidate] = reason
        self.taken[reference] = True
        return True

    def group(self, group: NodeGroup) -> bool:
        """Makes several nodes the partner of one, if all are free, and tells whether they were."""
        parts, whole = group.parts, group.whole
        if group.side == 1:
            free = self.is_free(whole) and not any(self.taken[part] for part in parts)
        else:
            free = not self.taken[whole] and all(self.is_free(part) for part in parts)
        if not free:
            return False
        candidates, references = ([whole], list(parts)) if group.side == 1 else (list(parts), [whole])
        self.grouped[candidates] = True
        self.taken[references] = True
        self.pairs.groups.append(group)
        return True

    def is_free(self, candidate: int) -> bool:
        """Tells whether a node of the candidate may still get a partner."""
        free = self.pairs.partner[candidate] < 0 and not self.grouped[candidate]
        return bool(free) and candidate not in self.pairs.ignored_candidate

    def free_candidates(self) -> list[int]:
        """Lists the nodes of the candidate that may still get a partner."""
        ignored = self.pairs.ignored_candidate
        return [int(i) for i in np.flatnonzero((self.pairs.partner < 0) & ~self.grouped) if int(i) not in ignored]

    def free_references(self) -> list[int]:
        """Lists the nodes of the reference that may still get a partner."""
        ignored = self.pairs.ignored_reference
        return [int(i) for i in np.flatnonzero(~self.taken) if int(i) not in ignored]

    def find_reference(self, path: str) -> int | None:
        """Gives the reference's node of a path, also without what wrappers add."""
        return self.by_path.get(path, self.by_normal_path.get(path))

    # -- ways to pair

    def by_names(self, doubtful: Callable[[int, int], bool] = lambda _c, _r: False) -> None:
        """Pairs equal paths, then equal paths without wrappers; those that are ``doubtful`` are left."""
        for index in self.free_candidates():
            partner = self.by_path.get(self.candidate[index].path)
            if partner is not None and not doubtful(index, partner):
                self.pair(index, partner, BY_NAME)
        for index in self.free_candidates():
            partner = self.by_normal_path.get(normalise(self.candidate[index].path))
            if partner is not None and not doubtful(index, partner):
                self.pair(index, partner, BY_NORMALISED_NAME)

    def by_content(self, candidate: dict[int, Hashable], reference: dict[int, Hashable]) -> None:
        """Pairs modules whose parameters are equal, where that is unique on both sides."""
        free = set(self.free_candidates())
        owners = _unique({index: key for index, key in reference.items() if not self.taken[index]})
        for key, index in _unique({i: k for i, k in candidate.items() if i in free}).items():
            if key in owners:
                self.pair(index, owners[key], BY_CONTENT)

    def by_relative_names(self) -> None:
        """Pairs the unpaired modules inside paired parents that have the same name there, from the top down."""
        for left, right in self._open_families():
            names = {self.reference[i].path.rpartition(".")[2]: i for i in right}
            for child in left:
                partner = names.get(self.candidate[child].path.rpartition(".")[2])
                if partner is not None:
                    self.pair(child, partner, BY_RELATIVE_NAME)

    def by_structure(self) -> None:
        """Aligns the unpaired modules inside paired parents as sequences of classes, from the top down."""
        for left, right in self._open_families():
            classes_left = [self.candidate[i].class_name for i in left]
            classes_right = [self.reference[i].class_name for i in right]
            for block in SequenceMatcher(None, classes_left, classes_right, autojunk=False).get_matching_blocks():
                for offset in range(block.size):
                    self.pair(left[block.a + offset], right[block.b + offset], BY_STRUCTURE)

    def _open_families(self) -> Iterable[tuple[list[int], list[int]]]:
        """Gives, from the top down, the free children of each paired parent on both sides."""
        children_c, children_r = self.children
        for parent in sorted(children_c, key=lambda i: _depth(self.candidate[i])):
            partner = int(self.pairs.partner[parent])
            if partner < 0:
                continue
            left = [i for i in children_c[parent] if self.is_free(i)]
            right = [i for i in children_r.get(partner, []) if not self.taken[i]]
            if left and right:
                yield left, right

    def by_unique_class(self) -> None:
        """Pairs free modules that are the only ones of their class, in paired parents or on both sides at all."""
        families = [*self._open_families(), (self.free_candidates(), self.free_references())]
        for left, right in families:
            classes = [
                _unique({i: _class_word(nodes[i]) for i in side if _is_named_module(nodes[i])})
                for nodes, side in ((self.candidate, left), (self.reference, right))
            ]
            for name in classes[0].keys() & classes[1].keys():
                self.pair(classes[0][name], classes[1][name], BY_CLASS)

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


def _is_named_module(node: Node) -> bool:
    return node.kind is NodeKind.MODULE and bool(node.path)


def _class_word(node: Node) -> str:
    """Gives a class without what implementations put around it: SiLU and SiLUActivation are one."""
    return node.class_name.lower().removesuffix("activation").removesuffix("layer")


def _depth(node: Node) -> int:
    return node.path.count(".") + bool(node.path)


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
