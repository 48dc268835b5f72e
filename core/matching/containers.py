"""Pair containers by what is paired inside them."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msprobe.core.matching.reasons import BY_CHILDREN
from msprobe.core.sites import NodeKind

if TYPE_CHECKING:
    from msprobe.core.matching.nodes import Matcher

#: Two containers are one where at least this share of what is paired inside either is paired between them.
_LEAST_SHARE = 0.5


def pair_containers(matcher: Matcher) -> None:
    """Pairs free containers, those first that share the largest part of what is paired in them.

    Where that is equal, as of a container inside a container: equal names, then equal classes, then the deepest.
    """
    shared, inside = _count(matcher)
    pairs = []
    for (c, r), count in shared.items():
        share = count / (inside[0][c] + inside[1][r] - count)
        if share >= _LEAST_SHARE:
            pairs.append((share, *_likeness(matcher, c, r), c, r))
    for *_, c, r in sorted(pairs, reverse=True):
        matcher.pair(c, r, BY_CHILDREN)


def _count(matcher: Matcher) -> tuple[dict[tuple[int, int], int], tuple[dict[int, int], dict[int, int]]]:
    """Counts what is paired between any two free containers, and what of it lies in each container of either side."""
    shared: dict[tuple[int, int], int] = defaultdict(int)
    inside: tuple[dict[int, int], dict[int, int]] = (defaultdict(int), defaultdict(int))
    for unit in _units(matcher):
        above = [{c for node in nodes for c in _containers(matcher, side, node)} for side, nodes in enumerate(unit)]
        for side in (0, 1):
            for container in above[side]:
                inside[side][container] += 1
        free = [c for c in above[0] if matcher.is_free(c)], [r for r in above[1] if not matcher.taken[r]]
        for pair in itertools.product(*free):
            shared[pair] += 1
    return shared, inside


def _units(matcher: Matcher) -> Iterable[tuple[list[int], list[int]]]:
    """Gives what is paired: a module and its partner, or several modules and the one that they are together."""
    for candidate, partner in enumerate(matcher.pairs.partner.tolist()):
        if (
            partner >= 0
            and matcher.candidate[candidate].kind is NodeKind.MODULE
            and not matcher.children[0].get(candidate)
        ):
            yield [candidate], [partner]
    for group in matcher.pairs.groups:
        sides = ([group.whole], list(group.parts))
        yield sides if group.side == 1 else sides[::-1]


def _containers(matcher: Matcher, side: int, node: int) -> Iterable[int]:
    parent = matcher.parents[side][node]
    while parent >= 0:
        yield parent
        parent = matcher.parents[side][parent]


def _likeness(matcher: Matcher, candidate: int, reference: int) -> tuple[bool, bool, int]:
    x, y = matcher.candidate[candidate], matcher.reference[reference]
    names = x.path.rpartition(".")[2] == y.path.rpartition(".")[2]
    return names, x.class_name == y.class_name, x.path.count(".") + y.path.count(".")
