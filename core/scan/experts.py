"""Findings about experts that get no tokens at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np

from msprobe.core.run import layout
from msprobe.core.run.reader import RankRun
from msprobe.core.scan.findings import Finding
from msprobe.core.scan.operands import places
from msprobe.core.sites import Direction, Role
from msprobe.core.trend.kinds import expert_of
from msprobe.core.trend.places import peer_groups

if TYPE_CHECKING:
    from msprobe.core.trend.index import TrendIndex

#: Steps that an expert must have gone without tokens, of all that were recorded.
_LEAST_STEPS: Final = 8
_MOST_NAMED: Final = 6


def dead_experts(index: TrendIndex, *, before: float) -> Iterator[Finding]:
    """Finds experts that got no token in any recorded step, on any of the ranks that hold them, while others did."""
    steps = index.steps[index.steps < before]
    if len(steps) < _LEAST_STEPS or not (index.sites["expert"] >= 0).any():
        return
    tokens = _tokens(index)
    groups = peer_groups({each.rank: each.mesh for each in index.manifest.ranks})
    held = _experts_held(index, groups)
    by_layer: dict[str, list[tuple[str, int, bool]]] = defaultdict(list)
    for (path, group), _ in held.items():
        layer = path.rpartition(".")[0]
        by_layer[layer].append((path, group, tokens.get((path, group), 0) > 0))
    for layer, experts in by_layer.items():
        dead = sorted({path for path, group, alive in experts if not alive})
        if not dead or all(not alive for _, _, alive in experts):
            continue
        ranks = sorted(r for r, g in groups.items() if any(p in dead and g == at and not ok for p, at, ok in experts))
        numbers = ", ".join(str(expert_of(path)) for path in dead[:_MOST_NAMED])
        more = f" and {len(dead) - _MOST_NAMED} more" if len(dead) > _MOST_NAMED else ""
        where = f" on {places(ranks)}" if len(ranks) < len(index.ranks) else ""
        noun = "Expert" if len(dead) == 1 else "Experts"
        sentence = f"{noun} {numbers}{more} of {layer}{where} got no token in {len(steps)} steps."
        yield Finding("dead expert", sentence, node=dead[0])


def _expert_path(path: str) -> str:
    """Gives the path of the expert itself: ``mlp.experts.3`` for ``mlp.experts.3.fc1``; "" for others."""
    expert = expert_of(path)
    if expert < 0:
        return ""
    words = path.partition("/")[0].split(".")
    last = max(i for i in range(1, len(words)) if words[i] == str(expert) and "expert" in words[i - 1])
    return ".".join(words[: last + 1])


def _tokens(index: TrendIndex) -> dict[tuple[str, int], int]:
    """Gives the most elements that ever entered each expert, by (path, group of replicas)."""
    sites = index.sites
    entering = (sites["direction"] == Direction.FORWARD.value) & (sites["role"] == Role.INPUT.value)
    wanted = np.flatnonzero(entering & (sites["expert"] >= 0)).tolist()
    files = [block.over_steps for block in index.manifest.blocks]
    rows = index.store.read(files, "site, rank, high_elements", "site IN (SELECT unnest(?))", [wanted])
    groups = peer_groups({each.rank: each.mesh for each in index.manifest.ranks})
    most: dict[tuple[str, int], int] = {}
    for site, rank, count in zip(*(rows[n].tolist() for n in ("site", "rank", "high_elements")), strict=True):
        key = _expert_path(str(sites["node"][site])), groups[rank]
        most[key] = max(most.get(key, 0), count)
    return most


def _experts_held(index: TrendIndex, groups: dict[int, int]) -> dict[tuple[str, int], int]:
    """Gives the experts that each group of replicas holds, from the modules of one rank of it."""
    held: dict[tuple[str, int], int] = {}
    for group in sorted(set(groups.values())):
        rank = min(r for r, g in groups.items() if g == group)
        for path in RankRun(layout.rank_folder(index.path, rank)).node_paths:
            expert = _expert_path(path)
            if expert:
                held[expert, group] = rank
    return held
