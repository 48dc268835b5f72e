"""What was computed from what: the data flow between the rows of a comparison.

Edges were recorded between sites, within a micro-step. Here they become edges between rows: the same at every step,
plus those between steps (gradient to the parameter of the next step). A source that has no partner on the other side
cannot be judged, so an edge from it is replaced by edges from its own sources.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from msprobe.core.grouping import group_numbers
from msprobe.core.sites import Direction, Role
from msprobe.core.verdicts.table import DIRECTIONS, ROLES, PairTable, RankMatch

Edges = NDArray[np.int64]

_FORWARD, _BACKWARD = (DIRECTIONS.index(d.value) for d in (Direction.FORWARD, Direction.BACKWARD))
_INPUT, _OUTPUT = (ROLES.index(r.value) for r in (Role.INPUT, Role.OUTPUT))
_PARAMETER, _BUFFER = (ROLES.index(r.value) for r in (Role.PARAMETER, Role.BUFFER))
_GRADIENT = ROLES.index(Role.GRADIENT.value)


@dataclass(frozen=True)
class Flow:
    """Edges between rows, and how they came to be known.

    ``edges`` has shape (n, 2): row of the source, row of the target. ``across_steps`` are those from gradients and
    values of one step to parameters of a later one, kept apart because another bound holds for them. ``by_order``
    marks rows whose sources are only guessed from the order of execution. ``external`` marks rows that come from
    outside the model: they have no sources. ``traced`` tells that any edge was seen, not guessed.
    ``shared`` are edges by which ranks reach each other, through ``hubs`` points that are numbered after the rows.
    """

    edges: Edges
    across_steps: Edges
    by_order: NDArray[np.bool_]
    external: NDArray[np.bool_]
    first_of_site: NDArray[np.bool_]
    traced: bool
    shared: Edges = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))
    hubs: int = 0


def build_flow(table: PairTable) -> Flow:
    """Gives the data flow between all rows."""
    guessed = np.zeros(len(table.sites.rank), dtype=bool)
    within = [_row_edges(table, match.rank, _site_edges(table, match, guessed)) for match in table.matches]
    updates, first = _edges_across_steps(table)
    edges = np.concatenate([*within, _accumulation(table)])
    with_source = np.zeros(len(table), dtype=bool)
    with_source[edges[:, 1]] = True
    with_source[updates[:, 1]] = True
    traced = any(len(match.candidate.edges) or len(match.reference.edges) for match in table.matches)
    return Flow(edges, updates, guessed[table.site], ~with_source, first, traced)


# --- edges between sites
# -----------------------------------------------------------------------------------------------------


def _site_edges(table: PairTable, match: RankMatch, guessed: NDArray[np.bool_]) -> Edges:
    """Gives the edges between common sites of one rank, none of them from a site without partner."""
    recorded = np.concatenate(
        [
            numbers[run.edges] if len(run.edges) else np.zeros((0, 2), dtype=np.int64)
            for run, numbers in ((match.candidate, match.sites.candidate), (match.reference, match.sites.reference))
        ]
    )
    recorded = np.unique(recorded[(recorded >= 0).all(axis=1)], axis=0)
    recorded = recorded[recorded[:, 0] != recorded[:, 1]]
    offset = table.offsets[match.rank]
    supposed = _supposed_edges(table, match, recorded)
    guessed[offset + supposed[:, 1]] = True
    return _bypass_unmatched(np.concatenate([recorded, supposed]), _matched_sites(match)) + offset


def _matched_sites(match: RankMatch) -> NDArray[np.bool_]:
    matched = np.zeros((2, match.sites.count), dtype=bool)
    for side, numbers in enumerate((match.sites.candidate, match.sites.reference)):
        matched[side, numbers[numbers >= 0]] = True
    both: NDArray[np.bool_] = matched[0] & matched[1]
    return both


def _bypass_unmatched(edges: Edges, matched: NDArray[np.bool_]) -> Edges:
    """Replaces sources without partner by their own sources, to any depth."""
    loose = ~matched[edges[:, 0]] if len(edges) else np.zeros(0, dtype=bool)
    if not loose.any():
        return edges
    sources: dict[int, list[int]] = defaultdict(list)
    for source, target in edges.tolist():
        sources[target].append(source)
    known: dict[int, frozenset[int]] = {}

    def grounded(site: int) -> frozenset[int]:
        """Gives the nearest matched ancestors of an unmatched site, without recursion."""
        found: set[int] = set()
        seen, todo = {site}, [site]
        while todo:
            for source in sources.get(todo.pop(), ()):
                if matched[source]:
                    found.add(source)
                elif source in known:
                    found |= known[source]
                elif source not in seen:
                    seen.add(source)
                    todo.append(source)
        known[site] = frozenset(found)
        return known[site]

    kept = edges[~loose].tolist()
    for source, target in edges[loose].tolist():
        kept.extend([ancestor, target] for ancestor in (known[source] if source in known else grounded(source)))
    unique: Edges = np.unique(np.array(kept, dtype=np.int64).reshape(-1, 2), axis=0)
    return unique


def _supposed_edges(table: PairTable, match: RankMatch, recorded: Edges) -> Edges:
    """Supposes sources for sites that no trace speaks of, from structure and the order of execution.

    An output comes from its own call's inputs and parameters (of a container: from the last output before it); a
    gradient from its call's incoming gradients and forward inputs; an input from the last output of its direction
    before it. In a run that was traced, only sites that first appear after the traced step need this.
    """
    offset, count = table.offsets[match.rank], match.sites.count
    rows = np.flatnonzero(table.rank == match.rank)
    rows = rows[np.lexsort((table.order[rows], table.micro_step[rows], table.step[rows]))]
    sites, first = np.unique(table.site[rows] - offset, return_index=True)
    first_row = np.full(count, -1, dtype=np.int64)
    first_row[sites] = rows[first]
    has_source = np.zeros(count, dtype=bool)
    has_source[recorded[:, 1]] = True
    lacking = (first_row >= 0) & ~has_source
    if len(recorded):
        lacking &= table.step[first_row] > table.step[rows].min(initial=0)
    role = table.sites.role[offset : offset + count]
    lacking &= ~np.isin(role, (_PARAMETER, _BUFFER)) & (
        table.sites.direction[offset : offset + count] != DIRECTIONS.index(Direction.UPDATE.value)
    )
    if not lacking.any():
        return np.zeros((0, 2), dtype=np.int64)
    return _suppose(table, offset, np.flatnonzero(lacking), sites[np.argsort(first, kind="stable")])


def _suppose(table: PairTable, offset: int, lacking: NDArray[np.int64], in_order: NDArray[np.int64]) -> Edges:
    facts = table.sites
    wanted = set(lacking.tolist())
    calls: dict[tuple[int, int], list[int]] = defaultdict(list)
    last_output: dict[int, int] = {}
    found: list[tuple[int, int]] = []
    for site in in_order.tolist():
        at = offset + site
        node, call, direction, role = (
            int(facts.node[at]),
            int(max(facts.candidate_call[at], facts.reference_call[at])),
            int(facts.direction[at]),
            int(facts.role[at]),
        )
        if site in wanted:
            own = [
                s
                for s in calls[(node, call)]
                if _feeds(facts.direction[offset + s], facts.role[offset + s], direction, role)
            ]
            leaf_result = role != _INPUT and (facts.is_leaf[at] or direction == _BACKWARD)
            if leaf_result and own:
                found.extend((s, site) for s in own)
            elif direction in last_output:
                found.append((last_output[direction], site))
            elif direction == _BACKWARD and _FORWARD in last_output:
                found.append((last_output[_FORWARD], site))
        calls[(node, call)].append(site)
        if role in (_PARAMETER, _BUFFER):
            calls[(node, call + 1)].append(site)
        if role == _OUTPUT or (direction == _BACKWARD and role == _INPUT):
            last_output[direction] = site
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def _feeds(source_direction: int, source_role: int, direction: int, role: int) -> bool:
    """Tells whether a site of a call feeds another site of the same call."""
    if source_role in (_INPUT, _PARAMETER, _BUFFER) and source_direction in (_FORWARD, direction):
        return not (direction == _BACKWARD and role == _INPUT)
    return False


# --- edges between rows
# ------------------------------------------------------------------------------------------------------


def _row_edges(table: PairTable, rank: int, site_edges: Edges) -> Edges:
    """Repeats the edges between a rank's sites for every micro-step in which both ends were seen.

    Parameters and buffers are recorded once in a step and serve all its micro-steps.
    """
    rows = np.flatnonzero(table.rank == rank)
    if not len(site_edges) or not len(rows):
        return np.zeros((0, 2), dtype=np.int64)
    rows = rows[np.lexsort((table.micro_step[rows], table.step[rows]))]
    step, micro = table.step[rows], table.micro_step[rows]
    starts = np.flatnonzero((np.diff(step, prepend=step[0] - 1) != 0) | (np.diff(micro, prepend=0) != 0))
    passing = ~table.is_role(Role.PARAMETER, Role.BUFFER)
    row_of = np.full(len(table.sites.rank), -1, dtype=np.int64)
    found, current = [], None
    for start, end in zip(starts, np.append(starts[1:], len(rows)), strict=True):
        block = rows[start:end]
        if step[start] != current:
            current = step[start]
            row_of[:] = -1
        row_of[table.site[block]] = block
        pairs = row_of[site_edges]
        found.append(pairs[(pairs >= 0).all(axis=1) & (table.micro_step[pairs[:, 1]] == micro[start])])
        row_of[table.site[block[passing[block]]]] = -1
    return np.concatenate(found)


def _parameter_keys(table: PairTable) -> NDArray[np.int64]:
    """Numbers (rank, node, argument): one number for a parameter and all its gradients."""
    facts = table.sites
    vocabulary: dict[tuple[int, int, str], int] = {}
    keys = [
        vocabulary.setdefault(key, len(vocabulary))
        for key in zip(facts.rank.tolist(), facts.node.tolist(), facts.argument.tolist(), strict=True)
    ]
    return np.array(keys, dtype=np.int64)[table.site] if len(keys) else np.zeros(0, dtype=np.int64)


def _accumulation(table: PairTable) -> Edges:
    """Links the gradients of all micro-steps of a step to the accumulated gradient that the optimizer consumes."""
    gradient = table.is_role(Role.GRADIENT)
    parts = np.flatnonzero(gradient & table.is_direction(Direction.BACKWARD))
    sums = np.flatnonzero(gradient & table.is_direction(Direction.UPDATE))
    if not len(parts) or not len(sums):
        return np.zeros((0, 2), dtype=np.int64)
    both = np.concatenate([parts, sums])
    numbers = group_numbers(_parameter_keys(table)[both], table.step[both])
    row_of = np.full(int(numbers.max()) + 1, -1, dtype=np.int64)
    row_of[numbers[len(parts) :]] = sums
    targets = row_of[numbers[: len(parts)]]
    return np.stack([parts[targets >= 0], targets[targets >= 0]], axis=1)


def _edges_across_steps(table: PairTable) -> tuple[Edges, NDArray[np.bool_]]:
    """Links a parameter or buffer to itself at the step recorded before, and to what changed it there.

    That is for a parameter the gradient that was consumed, for a buffer (running statistics) what entered its module.
    Also tells which rows are the first of their parameter or buffer: nothing recorded comes before them.
    """
    first = np.zeros(len(table), dtype=bool)
    lasting = np.flatnonzero(table.is_role(Role.PARAMETER, Role.BUFFER))
    if not len(lasting):
        return np.zeros((0, 2), dtype=np.int64), first
    keys, nodes = _parameter_keys(table), table.sites.node[table.site]
    lasting = lasting[np.lexsort((table.step[lasting], keys[lasting]))]
    same = np.concatenate([[False], keys[lasting][1:] == keys[lasting][:-1]])
    first[lasting[~same]] = True
    later, before = lasting[same], lasting[np.flatnonzero(same) - 1]
    buffer = table.is_role(Role.BUFFER)[later]
    entering = np.flatnonzero(table.is_role(Role.INPUT) & table.is_direction(Direction.FORWARD))
    gradients = np.flatnonzero(table.is_role(Role.GRADIENT))
    edges = [
        np.stack([before, later], axis=1),
        _changed_by(table.step, gradients, keys, later[~buffer], before[~buffer]),
        _changed_by(table.step, entering, nodes, later[buffer], before[buffer]),
    ]
    return np.concatenate(edges), first


def _changed_by(
    steps: NDArray[np.int64],
    causes: NDArray[np.int64],
    owners: NDArray[np.int64],
    later: NDArray[np.int64],
    before: NDArray[np.int64],
) -> Edges:
    """Links each later row to the causes that share its owner, at the step of the row before it."""
    wanted = set(owners[later].tolist())
    by_place: dict[tuple[int, int], list[int]] = defaultdict(list)
    for row, owner, step in zip(causes.tolist(), owners[causes].tolist(), steps[causes].tolist(), strict=True):
        if owner in wanted:
            by_place[(owner, step)].append(row)
    places = zip(later.tolist(), owners[later].tolist(), steps[before].tolist(), strict=True)
    found = [(cause, target) for target, owner, step in places for cause in by_place.get((owner, step), ())]
    return np.array(found, dtype=np.int64).reshape(-1, 2)
