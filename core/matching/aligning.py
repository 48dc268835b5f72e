"""Pair modules by the shapes of their parameters and the order of execution, where neither names nor content tell.

That is the case of two implementations that were trained apart: all names differ, and so does every number. The modules
that have parameters form a sequence on each side; both are aligned, a fused module against consecutive parts. Nothing
is paired unless nearly all of both sequences lines up: two different models do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.matching.combined import NodeGroup
from msprobe.core.matching.reasons import Reason
from msprobe.core.matching.transforms import CONCAT, INTERLEAVE, Transform

if TYPE_CHECKING:
    from msprobe.core.matching.nodes import Matcher
    from msprobe.core.matching.parameters import Parameters
    from msprobe.core.matching.views import RankView

#: Least share of the free modules with parameters, on each side, that must line up.
_LEAST_SHARE = 0.8
#: More parts than this are not tried as one.
_MOST_PARTS = 4
#: Above this many cells only sequences that fit step by step are aligned: the best alignment is quadratic.
_MOST_CELLS = 100_000

#: How many modules of either side a block may hold.
_MOVES = ((1, 1), *((1, n) for n in range(2, _MOST_PARTS + 1)), *((n, 1) for n in range(2, _MOST_PARTS + 1)))
#: First of left, first of right, how many of each.
Block = tuple[int, int, int, int]

BY_SHAPES = Reason("shapes of parameters and order of execution", 0.6)
_FUSED_CONFIDENCE = 0.5

#: Words in a class by which modules with equal shapes are told apart.
_KINDS = ("embed", "norm", "conv", "router", "expert")
#: Words in the name of a fused projection that keeps query groups together, as Megatron does.
_BY_GROUP = ("linear_qkv", "query_key_value")


@dataclass(frozen=True, slots=True)
class Item:
    """One module of a sequence: its node, kind and the shapes of its parameters."""

    node: int
    kind: str
    shapes: tuple[tuple[int, ...], ...]
    name: str


def align_by_shapes(
    matcher: Matcher, sides: tuple[RankView, RankView], parameters: tuple[Parameters, Parameters]
) -> None:
    """Pairs and groups free modules with parameters."""
    left, right = (_sequence(matcher, sides[side], parameters[side], side) for side in (0, 1))
    if not left or not right:
        return
    blocks = align_items(left, right)
    covered = [sum(block[side] for block in blocks) for side in (2, 3)]
    if min(covered[0] / len(left), covered[1] / len(right)) < _LEAST_SHARE:
        return
    for i, j, rows, columns in blocks:
        if rows == columns == 1:
            matcher.pair(left[i].node, right[j].node, BY_SHAPES)
        elif rows == 1:
            _group(matcher, sides[0], left[i], right[j : j + columns], side=1)
        else:
            _group(matcher, sides[1], right[j], left[i : i + rows], side=0)


def _sequence(matcher: Matcher, run: RankView, parameters: Parameters, side: int) -> list[Item]:
    """Gives the free modules with parameters in the order in which these were first recorded."""
    found = []
    for node, own in parameters.items():
        free = matcher.is_free(node) if side == 0 else not matcher.taken[node]
        if free and not matcher.children[side].get(node):
            at = run.nodes[node]
            shapes = tuple(p.shape for p in sorted(own, key=lambda p: (-len(p.shape), p.argument)))
            name = at.path.rpartition(".")[2]
            found.append((min(p.row for p in own), Item(node, _kind(at.class_name), shapes, name)))
    return [item for _, item in sorted(found, key=lambda entry: entry[0])]


def _kind(class_name: str) -> str:
    return next((word for word in _KINDS if word in class_name.lower()), "")


def align_items(left: Sequence[Item], right: Sequence[Item]) -> list[Block]:
    """Gives the blocks that belong together, in order: what fits step by step, else what covers the most."""
    quick = _walk(left, right)
    if quick is not None:
        return quick
    return _align_best(left, right) if len(left) * len(right) <= _MOST_CELLS else []


def _walk(left: Sequence[Item], right: Sequence[Item]) -> list[Block] | None:
    """Goes through both sequences, taking the first block that fits at each place; None where none does."""
    i = j = 0
    found: list[Block] = []
    while i < len(left) and j < len(right):
        fitting = (m for m in _MOVES if i + m[0] <= len(left) and j + m[1] <= len(right))
        move = next((m for m in fitting if _score(left[i : i + m[0]], right[j : j + m[1]])), None)
        if move is None:
            return None
        found.append((i, j, *move))
        i, j = i + move[0], j + move[1]
    return found if i == len(left) and j == len(right) else None


def _align_best(left: Sequence[Item], right: Sequence[Item]) -> list[Block]:
    """Covers as many modules as it can, by dynamic programming; equal names decide where that leaves a choice."""
    rows, columns = len(left), len(right)
    best = np.zeros((rows + 1, columns + 1))
    step = np.zeros((rows + 1, columns + 1, 2), dtype=np.int8)
    for i in range(rows + 1):
        for j in range(columns + 1):
            options = [(best[i - 1, j], 1, 0)] if i else []
            options += [(best[i, j - 1], 0, 1)] if j else []
            for a, b in _MOVES:
                if i >= a and j >= b:
                    score = _score(left[i - a : i], right[j - b : j])
                    if score:
                        options.append((best[i - a, j - b] + score, a, b))
            if options:
                best[i, j], *step[i, j] = max(options)
    return _trace(step, rows, columns)


def _trace(step: np.ndarray, i: int, j: int) -> list[Block]:
    found: list[Block] = []
    while i or j:
        a, b = (int(n) for n in step[i, j])
        i, j = i - a, j - b
        if a and b:
            found.append((i, j, a, b))
    return found[::-1]


def _score(left: Sequence[Item], right: Sequence[Item]) -> float:
    """Gives how many modules a block covers, 0 where it does not fit."""
    if len(left) == len(right) == 1:
        x, y = left[0], right[0]
        fits = x.kind == y.kind and x.shapes == y.shapes
        return 2.0 + 0.01 * (x.name == y.name) if fits else 0.0
    (whole,), parts = (left, right) if len(left) == 1 else (right, left)
    return 1.0 + len(parts) if _adds_up(whole, parts) else 0.0


def _adds_up(whole: Item, parts: Sequence[Item]) -> bool:
    """Tells whether parameters of the parts, of one input size, follow each other to those of the whole."""
    if whole.kind or any(part.kind or len(part.shapes) != len(whole.shapes) for part in parts):
        return False
    for position, shape in enumerate(whole.shapes):
        own = [part.shapes[position] for part in parts]
        if any(len(s) != len(shape) or s[1:] != shape[1:] for s in own) or sum(s[0] for s in own) != shape[0]:
            return False
    return len(whole.shapes[0]) > 1


def _group(matcher: Matcher, run: RankView, whole: Item, parts: Sequence[Item], *, side: int) -> None:
    groups = _groups(run, whole) if any(word in whole.name for word in _BY_GROUP) else 1
    fits = groups > 1 and all(shape[0] % groups == 0 for part in parts for shape in part.shapes)
    transform = Transform(INTERLEAVE, 0, groups) if fits else Transform(CONCAT)
    text = f"{transform.describe()}: shapes and order of execution; the order of the parts is supposed"
    reason = Reason(text, _FUSED_CONFIDENCE)
    matcher.group(NodeGroup(side, tuple(part.node for part in parts), whole.node, transform, reason))


def _groups(run: RankView, whole: Item) -> int:
    """Gives the recorded number of query groups of the container of a projection, else 1."""
    paths = {node.path: number for number, node in enumerate(run.nodes)}
    parent = paths.get(run.nodes[whole.node].parent or "", -1)
    for fact in run.facts:
        if fact.node in (parent, whole.node) and fact.name in ("num_query_groups", "num_key_value_heads"):
            return fact.value if isinstance(fact.value, int) else 1
    return 1
