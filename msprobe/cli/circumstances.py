"""Finds in what the circumstances of two runs differ, without matching their nodes: by equal names only."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING

from msprobe.core.verdicts.facts import FactTable, History, Key, differing_facts, differing_headers

if TYPE_CHECKING:
    from msprobe.core.comparison import ContextDifference
    from msprobe.core.run.reader import RankRun, Run

_HEADER_PARTS = ("versions", "config", "mesh", "context")


def differing_circumstances(candidate: Run, reference: Run) -> list[ContextDifference]:
    """Gives what differs between the headers, and between the facts of nodes that both runs have."""
    found: list[ContextDifference] = []
    for part in _HEADER_PARTS:
        found += differing_headers(getattr(candidate.header, part), getattr(reference.header, part), part)
    ours, theirs = ({"command": " ".join(run.header.arguments)} for run in (candidate, reference))
    found += differing_headers(ours, theirs, "arguments")
    ranks = [rank for rank in candidate.ranks if rank in reference.ranks]
    return found + differing_facts([_facts(candidate, reference, rank) for rank in ranks])


def _facts(candidate: Run, reference: Run, rank: int) -> FactTable:
    shared = set(candidate.rank(rank).node_paths) & set(reference.rank(rank).node_paths)
    return FactTable(*(_facts_of(run.rank(rank), shared) for run in (candidate, reference)))


def _facts_of(rank: RankRun, paths: set[str]) -> dict[Key, History]:
    """Gives the values over time of each fact, of the run and of the nodes named."""
    found: dict[Key, History] = defaultdict(list)
    for fact in rank.facts:
        path = rank.node_paths[fact.node] if fact.node >= 0 else None
        if path is None or path in paths:
            place = "run:" if path is None else f"node:{path}"
            text = fact.value if isinstance(fact.value, str) else json.dumps(fact.value, sort_keys=True, default=repr)
            found[(place, fact.kind, fact.name)].append((fact.step, text))
    return found
