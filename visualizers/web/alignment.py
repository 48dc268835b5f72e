"""The children of a pair of containers, laid side by side: paired ones in one row, in order of execution."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AlignedRow:
    """Nodes that stand beside each other. Both sides hold one node each, or one side several (N:1), or one is empty."""

    candidates: tuple[int, ...]
    references: tuple[int, ...]


def align(
    candidates: Sequence[int], references: Sequence[int], partners: Mapping[int, Sequence[int]]
) -> list[AlignedRow]:
    """Lays two lists of siblings side by side.

    ``partners`` maps a candidate to what it is paired with. Pairs that would cross others, and nodes whose partner is
    elsewhere, stand in rows of their own: the longest run of pairs in order keeps both columns in order of execution.
    """
    places = _places(candidates), _places(references)
    rows: list[AlignedRow] = []
    at_candidate = at_reference = 0
    for group in _in_order(_groups(candidates, references, partners), *places):
        first_c, last_c = _span(group.candidates, places[0])
        first_r, last_r = _span(group.references, places[1])
        rows += [AlignedRow((node,), ()) for node in candidates[at_candidate:first_c]]
        rows += [AlignedRow((), (node,)) for node in references[at_reference:first_r]]
        rows.append(group)
        # What stands between the members of a group, without belonging to it, follows it.
        rows += [AlignedRow((n,), ()) for n in candidates[first_c : last_c + 1] if n not in group.candidates]
        rows += [AlignedRow((), (n,)) for n in references[first_r : last_r + 1] if n not in group.references]
        at_candidate, at_reference = last_c + 1, last_r + 1
    rows += [AlignedRow((node,), ()) for node in candidates[at_candidate:]]
    rows += [AlignedRow((), (node,)) for node in references[at_reference:]]
    return rows


def _groups(
    candidates: Sequence[int], references: Sequence[int], partners: Mapping[int, Sequence[int]]
) -> list[AlignedRow]:
    """Gives the pairs among the siblings; nodes that share a partner are one group."""
    here = set(references)
    found: dict[tuple[int, ...], list[int]] = {}
    for node in candidates:
        paired = tuple(partner for partner in partners.get(node, ()) if partner in here)
        if paired:
            found.setdefault(paired, []).append(node)
    groups, taken = [], set[int]()
    for paired, nodes in found.items():
        if taken.isdisjoint(paired):
            taken.update(paired)
            groups.append(AlignedRow(tuple(nodes), paired))
    return groups


def _in_order(groups: list[AlignedRow], place_c: Mapping[int, int], place_r: Mapping[int, int]) -> list[AlignedRow]:
    """Gives the longest choice of groups that do not cross, in order (patience sorting)."""
    ordered = sorted(groups, key=lambda group: min(place_c[node] for node in group.candidates))
    tails: list[int] = []
    tail_of: list[int] = []
    before = [-1] * len(ordered)
    for index, group in enumerate(ordered):
        start = min(place_r[node] for node in group.references)
        length = bisect_left(tails, start)
        before[index] = tail_of[length - 1] if length else -1
        if length == len(tails):
            tails.append(start)
            tail_of.append(index)
        else:
            tails[length], tail_of[length] = start, index
    chosen, index = [], tail_of[-1] if tail_of else -1
    while index >= 0:
        chosen.append(ordered[index])
        index = before[index]
    return _without_overlap(chosen[::-1], place_c, place_r)


def _without_overlap(
    groups: list[AlignedRow], place_c: Mapping[int, int], place_r: Mapping[int, int]
) -> list[AlignedRow]:
    """Drops groups that begin inside the span of the one before."""
    kept: list[AlignedRow] = []
    end_c = end_r = -1
    for group in groups:
        starts = min(place_c[n] for n in group.candidates), min(place_r[n] for n in group.references)
        if starts[0] > end_c and starts[1] > end_r:
            kept.append(group)
            end_c = max(place_c[n] for n in group.candidates)
            end_r = max(place_r[n] for n in group.references)
    return kept


def _places(siblings: Sequence[int]) -> dict[int, int]:
    return {node: place for place, node in enumerate(siblings)}


def _span(nodes: Sequence[int], places: Mapping[int, int]) -> tuple[int, int]:
    found = [places[node] for node in nodes]
    return min(found), max(found)
