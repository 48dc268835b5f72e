"""The nodes of one side as a hierarchy, numbered so that a subtree is a range.

Nodes are numbered in pre-order, children in order of execution: node ``i`` and all below it are ``i`` to ``ends[i]``.
Whatever is counted for nodes is therefore rolled up to their containers by one cumulative sum.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from msprobe.core.matching.names import split_operator
from msprobe.core.sites import NodeKind

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Seen(NamedTuple):
    """A node as it was met: when it was first executed (any growing number), its class and kind."""

    path: str
    class_name: str
    kind: NodeKind
    order: float


@dataclass(frozen=True)
class NodeTree:
    """All nodes of one side in pre-order; number 0 is the top, which holds the whole model and what is outside of it.

    ``parents`` is -1 for the top. ``ends[i]`` is one past the last node below ``i``.
    """

    paths: tuple[str, ...]
    classes: tuple[str, ...]
    kinds: tuple[NodeKind, ...]
    parents: NDArray[np.int64]
    depths: NDArray[np.int64]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.paths)

    @cached_property
    def number_of(self) -> dict[str, int]:
        """The number of each path; the root module "" is not the top."""
        return {path: number for number, path in enumerate(self.paths) if number}

    def children(self, node: int) -> list[int]:
        """Gives the nodes directly below one, in order of execution."""
        found, child = [], node + 1
        while child < self.ends[node]:
            found.append(child)
            child = int(self.ends[child])
        return found

    def ancestors(self, node: int) -> list[int]:
        """Gives the containers of a node, the outermost first, without the top."""
        found = []
        node = int(self.parents[node])
        while node > 0:
            found.append(node)
            node = int(self.parents[node])
        return found[::-1]

    def roll_up(self, own: NDArray[np.int64]) -> NDArray[np.int64]:
        """Adds to each node's counts (first axis: nodes) those of all nodes below it."""
        sums = np.concatenate([np.zeros((1, *own.shape[1:]), own.dtype), np.cumsum(own, axis=0)])
        rolled: NDArray[np.int64] = sums[self.ends] - sums[np.arange(len(self))]
        return rolled


#: Operators that no module called are put together under these names, beside the model.
_BESIDE = ("outside", "optimizer")


def container_of(path: str) -> str | None:
    """Gives the path of what contains a node; None when nothing does."""
    module, operator = split_operator(path)
    if operator:
        return module
    if not module or module in _BESIDE:
        return None
    return module.rpartition(".")[0]


def build_tree(nodes: Iterable[Seen]) -> NodeTree:
    """Builds the hierarchy; containers that were never seen themselves are added.

    Nodes are taken in order of execution, and each drags the containers around it in: what a container holds is thus
    in order of what was executed first in it.
    """
    seen: dict[str, Seen] = {}
    for node in nodes:
        known = seen.get(node.path)
        if known is None or node.order < known.order:
            seen[node.path] = node
    children: dict[str | None, list[str]] = {}
    placed: set[str] = set()
    for node in sorted(seen.values(), key=lambda node: node.order):
        path: str | None = node.path
        while path is not None and path not in placed:
            placed.add(path)
            container = container_of(path)
            children.setdefault(container, []).append(path)
            path = container
    return _numbered(seen, children)


def _numbered(seen: dict[str, Seen], children: dict[str | None, list[str]]) -> NodeTree:
    paths, parents, depths, ends = [""], [-1], [0], [0]
    classes, kinds = [""], [NodeKind.MODULE]
    waiting: list[tuple[str, int]] = [(path, 0) for path in reversed(children.get(None, []))]
    while waiting:
        path, parent = waiting.pop()
        number = len(paths)
        node = seen.get(path)
        paths.append(path)
        parents.append(parent)
        depths.append(depths[parent] + 1)
        classes.append(node.class_name if node else "")
        kinds.append(node.kind if node else NodeKind.MODULE)
        ends.append(number + 1)
        if path in children:
            waiting += [(below, number) for below in reversed(children[path])]
    for number in range(len(paths) - 1, 0, -1):
        ends[parents[number]] = max(ends[parents[number]], ends[number])
    ends[0] = len(paths)
    texts = (tuple(paths), tuple(classes), tuple(kinds))
    return NodeTree(*texts, *(np.array(values, np.int64) for values in (parents, depths, ends)))
