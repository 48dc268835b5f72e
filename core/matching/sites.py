"""Give the sites of two runs one common numbering: equal numbers are one place, seen by both sides."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.grouping import group_numbers
from msprobe.core.matching.arguments import align_arguments
from msprobe.core.matching.calls import Call, align
from msprobe.core.matching.names import split_operator
from msprobe.core.sites import Direction, NodeKind, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.matching.nodes import NodePairs
    from msprobe.core.matching.views import RankView

_OUTPUT = tuple(Role).index(Role.OUTPUT)
_BACKWARD = tuple(Direction).index(Direction.BACKWARD)
#: Owners of sequences that are modules are this number and below; other numbers are the modules of operators.
_MODULE = -2
#: Aligned call numbers of calls without a partner start here: odd ones are the candidate's, even ones the reference's.
_UNPAIRED = 1 << 24


@dataclass(frozen=True, slots=True)
class SitePairs:
    """The common number of each site of either side, below ``count``; -1 for sites that the mapping ignores."""

    candidate: NDArray[np.int64]
    reference: NDArray[np.int64]
    count: int


def match_sites(candidate: RankView, reference: RankView, nodes: NodePairs) -> SitePairs:
    """Numbers the sites of both sides so that paired ones share a number."""
    pair_c, pair_r = _node_numbers(nodes, len(candidate.nodes), len(reference.nodes))
    sides = (candidate, reference)
    node_numbers = [pairs[side.sites.node] for side, pairs in zip(sides, (pair_c, pair_r), strict=True)]
    calls = [side.sites.call.astype(np.int64) for side in sides]
    _align_calls(sides, node_numbers, calls)
    arguments = _codes(*(side.sites.argument.tolist() for side in sides))
    places = [side.sites.direction.astype(np.int64) * len(Role) + side.sites.role for side in sides]
    align_arguments(sides, node_numbers, places, arguments)
    split = len(candidate.sites)
    columns = (node_numbers, arguments, places, calls)
    numbers = group_numbers(*(np.concatenate(column) for column in columns))
    count = int(numbers.max(initial=-1)) + 1
    numbers[np.concatenate(node_numbers) < 0] = -1
    return SitePairs(numbers[:split], numbers[split:], count)


def _node_numbers(nodes: NodePairs, count_c: int, count_r: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    pair_c = np.arange(count_c, dtype=np.int64)
    pair_r = np.arange(count_c, count_c + count_r, dtype=np.int64)
    paired = np.flatnonzero(nodes.partner >= 0)
    pair_r[nodes.partner[paired]] = paired
    pair_c[list(nodes.ignored_candidate)] = -1
    pair_r[list(nodes.ignored_reference)] = -1
    return pair_c, pair_r


def _codes(*lists: list[str]) -> list[NDArray[np.int64]]:
    vocabulary: dict[str, int] = {}
    return [
        np.array([vocabulary.setdefault(text, len(vocabulary)) for text in texts], dtype=np.int64) for texts in lists
    ]


def _align_calls(
    sides: tuple[RankView, RankView], node_numbers: list[NDArray[np.int64]], calls: list[NDArray[np.int64]]
) -> None:
    """Replaces call numbers by aligned ones in every sequence whose lengths differ between the sides."""
    keys = [numbers * len(Direction) + side.sites.direction for side, numbers in zip(sides, node_numbers, strict=True)]
    size = max((int(key.max(initial=-1)) for key in keys), default=-1) + 1
    counts = np.zeros((2, size), dtype=np.int64)
    for row, (key, call) in enumerate(zip(keys, calls, strict=True)):
        np.maximum.at(counts[row], key[key >= 0], call[key >= 0] + 1)
    shifted = np.flatnonzero((counts[0] != counts[1]) & (counts.min(axis=0) > 0))
    if not len(shifted):
        return
    groups = [_groups(side, numbers, set(shifted.tolist())) for side, numbers in zip(sides, node_numbers, strict=True)]
    forward: dict[int, tuple[dict[int, int], dict[int, int]]] = {}
    for group in sorted(groups[0].keys() & groups[1].keys()):
        owner, direction = group
        sequences = [side[group] for side in groups]
        if owner <= _MODULE and direction == _BACKWARD and owner in forward:
            _follow(sequences, forward[owner], calls)
        else:
            forward.setdefault(owner, _align_group(sequences, calls))


@dataclass(frozen=True, slots=True)
class _Occurrence:
    """One call of one node: which sites belong to it, when it first happened, and what it looks like."""

    sites: tuple[int, ...]
    first: int
    call: Call


def _groups(side: RankView, numbers: NDArray[np.int64], shifted: set[int]) -> dict[Any, list[_Occurrence]]:
    """Gives the sequences that hold a shifted node, by (owner, direction), in order of execution."""
    owners = _owners(side, numbers)
    directions = side.sites.direction
    keys = list(zip(owners.tolist(), directions.tolist(), strict=True))
    wanted = {
        key
        for key, number, direction in zip(keys, numbers.tolist(), directions.tolist(), strict=True)
        if number * len(Direction) + direction in shifted
    }
    firsts, norms, forms = _first_records(side)
    members: dict[Any, dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    for site, key in enumerate(keys):
        if key in wanted and numbers[site] >= 0:
            members[key][(int(side.sites.node[site]), int(side.sites.call[site]))].append(site)
    found: dict[Any, list[_Occurrence]] = {}
    for key, calls in members.items():
        sequence = [_occurrence(side, sites, numbers, firsts, norms, forms) for sites in calls.values()]
        found[key] = sorted(sequence, key=lambda occurrence: occurrence.first)
    return found


def _owners(side: RankView, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Gives what a site's sequence belongs to: an operator's module, or the module itself (kept apart by sign)."""
    by_path = {node.path: index for index, node in enumerate(side.nodes)}
    number_of_node = np.full(len(side.nodes), -1, dtype=np.int64)
    number_of_node[side.sites.node] = numbers
    owner = np.empty(len(side.nodes), dtype=np.int64)
    for index, node in enumerate(side.nodes):
        if node.kind is NodeKind.OP:
            module = by_path.get(split_operator(node.path)[0], -1)
            owner[index] = number_of_node[module] if module >= 0 else -1
        else:
            owner[index] = _MODULE - number_of_node[index]
    return owner[side.sites.node]


def _first_records(side: RankView) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Gives, for each site, the row of its first record, and that record's norm and form."""
    records = side.records
    firsts = np.full(len(side.sites), -1, dtype=np.int64)
    sites, rows = np.unique(records["site"], return_index=True)
    firsts[sites] = rows
    norm = records.get("norm")
    norms = np.full(len(firsts), np.nan) if norm is None else np.where(firsts >= 0, norm[firsts], np.nan)
    forms = np.where(firsts >= 0, records["form"].astype(np.int64)[firsts], -1)
    return firsts, norms, forms


def _occurrence(  # three arrays made once for all
    side: RankView,
    sites: list[int],
    numbers: NDArray[np.int64],
    firsts: NDArray[np.int64],
    norms: NDArray[np.float64],
    forms: NDArray[np.int64],
) -> _Occurrence:
    outputs = [site for site in sites if side.sites.role[site] == _OUTPUT] or sites
    shown = outputs[0]
    shape = side.forms[int(forms[shown])].shape if forms[shown] >= 0 else ()
    kind = hash((int(numbers[shown]), shape))
    first = min(int(firsts[site]) for site in sites)
    return _Occurrence(tuple(sites), first, Call(kind, float(norms[shown])))


def _follow(
    sequences: list[list[_Occurrence]], forward: tuple[dict[int, int], dict[int, int]], calls: list[NDArray[np.int64]]
) -> None:
    """Gives calls of a module's backward the aligned numbers of their forward, whose calls they count by."""
    for side, sequence in enumerate(sequences):
        for occurrence in sequence:
            sites = list(occurrence.sites)
            call = int(calls[side][sites[0]])
            calls[side][sites] = forward[side].get(call, _UNPAIRED + 2 * call + (1 - side))


def _align_group(
    sequences: list[list[_Occurrence]], calls: list[NDArray[np.int64]]
) -> tuple[dict[int, int], dict[int, int]]:
    """Aligns two sequences of calls; gives the aligned number of each call, of either side."""
    pairs = align([o.call for o in sequences[0]], [o.call for o in sequences[1]])
    partner = [
        {c: position for position, (c, _) in enumerate(pairs)},
        {r: position for position, (_, r) in enumerate(pairs)},
    ]
    numbers: tuple[dict[int, int], dict[int, int]] = ({}, {})
    for side, sequence in enumerate(sequences):
        for index, occurrence in enumerate(sequence):
            position = partner[side].get(index)
            aligned = position if position is not None else _UNPAIRED + 2 * index + (1 - side)
            numbers[side][int(calls[side][occurrence.sites[0]])] = aligned
            calls[side][list(occurrence.sites)] = aligned
    return numbers
