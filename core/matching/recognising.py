"""Recognise fused, interleaved, transposed and reordered parameters by the content sums of their rows and columns.

A row of a fused weight is a row of one of its parts, with the same content sum (``core.content_vectors``). So the rows
of a whole, looked up among all rows of the other side, name its parts, and their order names the transform. A row that
is not unique names nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from msprobe.core.matching.combined import NodeGroup
from msprobe.core.matching.reasons import BY_CONTENT, Reason
from msprobe.core.matching.transforms import CONCAT, INTERLEAVE, Transform

if TYPE_CHECKING:
    from msprobe.core.matching.nodes import Matcher
    from msprobe.core.matching.parameters import Parameter, Parameters
    from msprobe.core.matching.views import RankView

Vector = NDArray[np.uint64]

#: How sure content is: rows in a plain order; rows in any other order.
_IN_ORDER, _REORDERED = 0.95, 0.8


@dataclass
class _Content:
    """The vectors of a parameter, read when they are needed."""

    run: RankView
    parameter: Parameter

    @cached_property
    def vectors(self) -> tuple[Vector, Vector] | None:
        return self.run.content_vectors(self.parameter.row)


def recognise(matcher: Matcher, sides: tuple[RankView, RankView], parameters: tuple[Parameters, Parameters]) -> None:
    """Pairs and groups the free modules whose parameters hold the same in another layout."""
    for side in (1, 0):  # first wholes of the candidate, then of the reference
        wholes, parts = (_free(matcher, sides[s], parameters[s], s) for s in (1 - side, side))
        _pair_layouts(matcher, wholes, parts, side)
        wholes, parts = (
            [c for c in found if _is_free(matcher, c, s)] for s, found in ((1 - side, wholes), (side, parts))
        )
        if wholes and len(parts) > 1:
            _group(matcher, wholes, parts, side)


def _is_free(matcher: Matcher, content: _Content, side: int) -> bool:
    node = content.parameter.node
    return matcher.is_free(node) if side == 0 else not matcher.taken[node]


def _free(matcher: Matcher, run: RankView, parameters: Parameters, side: int) -> list[_Content]:
    """Gives the telling parameters of free modules that have more than one dimension."""
    return [
        content
        for own in parameters.values()
        for parameter in own
        if parameter.tells and parameter.content_sum is not None and len(parameter.shape) > 1
        if _is_free(matcher, content := _Content(run, parameter), side)
    ]


# --- one parameter in another layout


def _pair_layouts(matcher: Matcher, wholes: list[_Content], parts: list[_Content], side: int) -> None:
    """Pairs modules that hold the same elements, transposed, reshaped or under another name."""
    by_sum: dict[int | None, list[list[_Content]]] = {}
    for position, contents in enumerate((wholes, parts)):
        for content in contents:
            by_sum.setdefault(content.parameter.content_sum, [[], []])[position].append(content)
    for found in by_sum.values():
        if len(found[0]) == len(found[1]) == 1:
            _pair_layout(matcher, found[0][0], found[1][0], side)


def _pair_layout(matcher: Matcher, whole: _Content, part: _Content, side: int) -> None:
    x, y = whole.parameter, part.parameter
    candidate, reference = (x.node, y.node) if side == 1 else (y.node, x.node)
    if x.shape == y.shape and x.checksum == y.checksum:
        matcher.pair(candidate, reference, BY_CONTENT)
        return
    transform, text = None, ""
    if x.checksum == y.checksum:
        transform, text = Transform(reshapes=True, of="parameters"), "equal parameters in another shape"
    elif _is_turned(whole, part):
        transform, text = Transform(transpose=(0, 1)), "equal parameters, transposed"
    elif find_order(whole.vectors, [part.vectors]):
        transform, text = Transform(reorders=True), "equal rows of parameters, in another order"
    if transform is not None:
        matcher.group(NodeGroup(side, (y.node,), x.node, transform, Reason(text, _IN_ORDER)))
    elif x.shape == y.shape:
        text = "the same elements of parameters, in another order"
        matcher.pair(candidate, reference, Reason(text, _REORDERED))


def find_order(whole: tuple[Vector, Vector] | None, parts: Sequence[tuple[Vector, Vector] | None]) -> tuple[int, ...]:
    """Gives the place among the parts' rows of each row of the whole; empty where rows are not unique or not there."""
    held = [part for part in parts if part is not None]
    if whole is None or len(held) < len(parts):
        return ()
    rows = np.concatenate([part[0] for part in held])
    columns = np.add.reduce([part[1] for part in held]) if len({len(part[1]) for part in held}) == 1 else None
    if len(rows) != len(whole[0]) or len(np.unique(rows)) != len(rows) or not np.array_equal(columns, whole[1]):  # type: ignore[arg-type]
        return ()
    sorter = np.argsort(rows)
    order = sorter[np.minimum(np.searchsorted(rows[sorter], whole[0]), len(rows) - 1)]
    return tuple(order.tolist()) if np.array_equal(rows[order], whole[0]) else ()


def _is_turned(whole: _Content, part: _Content) -> bool:
    if whole.parameter.shape != part.parameter.shape[::-1] or len(part.parameter.shape) != 2:
        return False
    if whole.vectors is None or part.vectors is None:
        return False
    return all(np.array_equal(x, y) for x, y in zip(whole.vectors, part.vectors[::-1], strict=True))


# --- several parameters that are one


class _Places:
    """Where each row (or column) of many parameters stands, by its content sum."""

    def __init__(self, contents: Sequence[_Content], which: int) -> None:
        self.contents = [content for content in contents if content.vectors is not None]
        vectors = [content.vectors[which] for content in self.contents if content.vectors is not None]
        sums = np.concatenate(vectors) if vectors else np.zeros(0, np.uint64)
        owner = np.repeat(np.arange(len(vectors)), [len(vector) for vector in vectors])
        place = np.concatenate([np.arange(len(vector)) for vector in vectors]) if vectors else owner
        order = np.argsort(sums, kind="stable")
        self._sums, self._owner, self._place = sums[order], owner[order], place[order]
        unique = np.ones(len(sums), dtype=bool)
        equal = self._sums[1:] == self._sums[:-1]
        unique[1:] &= ~equal
        unique[:-1] &= ~equal
        self._unique = unique
        self.lengths = [len(vector) for vector in vectors]

    def find(self, sums: Vector) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Gives owner and place of each sum; None where one is not there, or not unique."""
        if not len(self._sums) or len(np.unique(sums)) != len(sums):
            return None
        at = np.minimum(np.searchsorted(self._sums, sums), len(self._sums) - 1)
        if not ((self._sums[at] == sums) & self._unique[at]).all():
            return None
        return self._owner[at], self._place[at]


def _group(matcher: Matcher, wholes: list[_Content], parts: list[_Content], side: int) -> None:
    places = [_Places(parts, which) for which in (0, 1)]
    for whole in sorted(wholes, key=lambda content: -content.parameter.size):
        if not _is_free(matcher, whole, 1 - side) or whole.vectors is None:
            continue
        for axis, turned in ((0, False), (1, False), (0, True), (1, True)):
            if axis == 1 and len(whole.parameter.shape) != 2:
                continue
            group = _find_parts(whole, places[1 - axis if turned else axis], side, axis, turned=turned)
            if group is not None and matcher.group(group):
                break


def _find_parts(whole: _Content, places: _Places, side: int, axis: int, *, turned: bool) -> NodeGroup | None:
    """Finds the parameters whose rows make up a whole along one axis, and how they are ordered in it."""
    assert whole.vectors is not None
    found = places.find(whole.vectors[axis])
    if found is None:
        return None
    owner, place = found
    members = list(dict.fromkeys(owner.tolist()))
    lengths = [places.lengths[member] for member in members]
    if len(members) < 2 or sum(lengths) != len(owner):
        return None
    parts = [places.contents[member] for member in members]
    if len({part.parameter.node for part in parts}) < len(parts) or not _others_add_up(
        whole, parts, axis, turned=turned
    ):
        return None
    at = np.concatenate([np.flatnonzero(owner == member)[np.argsort(place[owner == member])] for member in members])
    groups = _groups_of(at, lengths)
    transform = Transform(
        CONCAT if groups == 1 else INTERLEAVE,
        -1 if groups == 1 else 0,
        max(groups, 1),
        reorders=not groups,
        transpose=(0, 1) if turned else None,
    )
    how = "columns" if axis == 1 else "rows"
    text = f"{how} of the parts in order (content)" if groups else f"{how} of the parts, in another order (content)"
    reason = Reason(f"{transform.describe()}: {text}", _IN_ORDER if groups else _REORDERED)
    return NodeGroup(side, tuple(part.parameter.node for part in parts), whole.parameter.node, transform, reason)


def _others_add_up(whole: _Content, parts: list[_Content], axis: int, *, turned: bool) -> bool:
    """Checks the sums along the other axis, which are those of the parts together."""
    assert whole.vectors is not None
    other = [part.vectors[axis if turned else 1 - axis] for part in parts if part.vectors is not None]
    if any(len(vector) != len(other[0]) for vector in other):
        return False
    return np.array_equal(np.add.reduce(other), whole.vectors[1 - axis])


def _groups_of(at: NDArray[np.int64], lengths: list[int]) -> int:
    """Tells in how many groups parts of these lengths are interleaved; 1: one after the other, 0: otherwise.

    ``at`` is the place in the whole of each row of the parts, part after part.
    """
    first = int(np.argmax(np.append(np.diff(at[: lengths[0]]) != 1, True))) + 1
    groups, rest = divmod(lengths[0], first)
    if rest or any(length % groups for length in lengths):
        return 0
    starts = np.cumsum([0, *lengths])
    indices = [np.arange(a, b).reshape(groups, -1) for a, b in itertools.pairwise(starts)]
    expected = np.concatenate(indices, axis=1).reshape(-1)
    place = np.empty(len(at), dtype=np.int64)
    place[at] = np.arange(len(at))
    return groups if np.array_equal(place, expected) else 0
