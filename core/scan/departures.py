"""Findings about what leaves its normal band: episodes over steps, and ranks unlike their replicas.

One cause puts many sites out of their band, so anomalies of neighbouring steps are one episode. It is told from its
first site in data flow, and whether the forward was sick before the backward.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from msprobe.core.robust import THRESHOLD
from msprobe.core.scan.findings import Finding
from msprobe.core.scan.operands import places
from msprobe.core.sites import Role
from msprobe.core.trend.anomalies import Anomaly, anomalies
from msprobe.core.trend.kinds import SCALAR

if TYPE_CHECKING:
    from msprobe.core.trend.index import TrendIndex

#: Steps without anomaly that part two episodes.
_GAP: Final = 2
#: A lone anomaly is told from this score on; two sites of one step support each other.
_LONE: Final = 2 * THRESHOLD
_MOST_EPISODES: Final = 20
_MOST_LISTED: Final = 8
#: A scalar by which people speak of a spike.
_GRADIENT_NORM: Final = ("grad_norm", "gradient norm", "grad norm", "gradient_norm")


def departures(index: TrendIndex, *, before: float) -> list[Finding]:
    """Gives the findings about steps below ``before``: what comes after a NaN is its consequence."""
    found = [a for a in anomalies(index) if a.step < before]
    over_steps = [a for a in found if a.against == "steps"]
    over_ranks = [a for a in found if a.against == "replicas"]
    findings = [_episode(index, episode) for episode in _episodes(over_steps)]
    return [*findings[:_MOST_EPISODES], *_replicas(index, over_ranks)]


def _episodes(found: Sequence[Anomaly]) -> Iterator[list[Anomaly]]:
    episode: list[Anomaly] = []
    for anomaly in sorted(found, key=lambda a: a.step):
        if episode and anomaly.step > episode[-1].step + _GAP:
            if _counts(episode):
                yield episode
            episode = []
        episode.append(anomaly)
    if episode and _counts(episode):
        yield episode


def _counts(episode: Sequence[Anomaly]) -> bool:
    places = {(a.site, a.step) for a in episode}
    return len({step for _, step in places}) < len(places) or max(abs(a.score) for a in episode) >= _LONE


def _episode(index: TrendIndex, episode: list[Anomaly]) -> Finding:
    sites, first_step = index.sites, episode[0].step
    at_first = _worst_of_each_site(index, [a for a in episode if a.step == first_step])
    first = _with_rank(index, at_first[0])
    strongest = max(episode, key=lambda a: abs(a.score))
    norm = _first_normalisation(index, [a for a in episode if a.step == first_step])
    evidence = [f"{sites.name(a.site)}: {_described(a)}" for a in at_first[:_MOST_LISTED]]
    if all(strongest.site != a.site for a in at_first[:_MOST_LISTED]):
        what = f"{sites.name(strongest.site)}: {_described(strongest)}"
        evidence.append(f"furthest out, at step {strongest.step}: {what}")
    clauses = [
        f"{_opening(index, episode)}, first {sites.name(first.site)}: its {_described(first)}{_on(index, first)}",
        _who_was_sick_first(index, episode),
    ]
    if norm is not None and norm.site != first.site:
        owner = f"{sites['node'][norm.site]} ({sites['class_name'][norm.site]})"
        clauses.append(f"the first normalisation out of its band is {owner}: the {_described(norm)}")
    return Finding(
        kind="spike", sentence="; ".join(filter(None, clauses)) + ".", step=first_step, rank=first.rank,
        node=str(sites["node"][first.site]), site=sites.name(first.site), evidence=tuple(evidence),
        score=strongest.score,
    )  # fmt: skip


def _worst_of_each_site(index: TrendIndex, found: Sequence[Anomaly]) -> list[Anomaly]:
    """Gives the worst anomaly of each site, in order of flow."""
    worst: dict[int, Anomaly] = {}
    for anomaly in found:
        if anomaly.site not in worst or abs(anomaly.score) > abs(worst[anomaly.site].score):
            worst[anomaly.site] = anomaly
    return sorted(worst.values(), key=lambda a: int(index.sites.position[a.site]))


def _opening(index: TrendIndex, episode: Sequence[Anomaly]) -> str:
    """Says when, how many sites, and what people noticed: the gradient norm."""
    sites, first_step = index.sites, episode[0].step
    scalars = {a.site for a in episode if sites["direction"][a.site] == SCALAR}
    spike = next((a for a in episode if str(sites["argument"][a.site]).lower() in _GRADIENT_NORM), None)
    count = len({a.site for a in episode} - scalars)
    left = f"{count} site{'s' if count != 1 else ''} left {'their' if count != 1 else 'its'} normal band"
    if spike is None:
        return f"At step {first_step} {left}"
    if spike.step == first_step:
        return f"At step {first_step} the gradient norm {_moved(spike)} and {left}"
    return f"At step {spike.step} the gradient norm {_moved(spike)}; from step {first_step} on {left}"


def _who_was_sick_first(index: TrendIndex, episode: Sequence[Anomaly]) -> str:
    phase = index.sites["phase"]
    forward = [a.step for a in episode if phase[a.site] == 0]
    backward = [a.step for a in episode if phase[a.site] in (1, 2)]
    if not backward:
        return ""
    if forward and min(forward) <= min(backward):
        return "the forward was sick before the backward"
    return "the forward of that step is within its band"


def _first_normalisation(index: TrendIndex, found: Sequence[Anomaly]) -> Anomaly | None:
    """Gives the first output of a normalisation, its minimum where that is out of its band."""
    names, roles = index.sites["class_name"], index.sites["role"]
    outputs = [a for a in found if "norm" in str(names[a.site]).lower() and roles[a.site] == Role.OUTPUT.value]
    outputs = [a for a in outputs if index.sites["phase"][a.site] == 0]
    position = index.sites.position
    return min(outputs, key=lambda a: (int(position[a.site]), a.statistic != "min", -abs(a.score)), default=None)


def _moved(anomaly: Anomaly) -> str:
    verb = "rose" if anomaly.score > 0 else "fell"
    limit = anomaly.high if anomaly.score > 0 else anomaly.low
    return f"{verb} to {anomaly.value:.4g} ({'up to' if anomaly.score > 0 else 'from'} {limit:.4g} was normal)"


def _described(anomaly: Anomaly) -> str:
    word = {"min": "minimum", "max": "maximum", "largest": "largest element"}.get(anomaly.statistic, anomaly.statistic)
    return f"{word} is {anomaly.value:.4g}, normal is {anomaly.low:.4g} to {anomaly.high:.4g}"


def _on(index: TrendIndex, anomaly: Anomaly) -> str:
    return f" on rank {anomaly.rank}" if anomaly.rank >= 0 and len(index.ranks) > 1 else ""


def _with_rank(index: TrendIndex, anomaly: Anomaly) -> Anomaly:
    """Finds the rank whose value it is."""
    files = [tile.file for block in index.blocks_of(np.array([anomaly.step])) for tile in block.tiles]
    where = "step = ? AND site = ?"
    rows = index.store.read(files, f'rank, "{anomaly.statistic}" AS value', where, [anomaly.step, anomaly.site])
    own = np.unique(rows["rank"][rows["value"] == anomaly.value])
    return replace(anomaly, rank=int(own[0])) if len(own) == 1 else anomaly


def _replicas(index: TrendIndex, found: Sequence[Anomaly]) -> list[Finding]:
    """Gives one finding for each rank that is unlike its replicas."""
    by_rank: dict[int, list[Anomaly]] = {}
    for anomaly in found:
        by_rank.setdefault(anomaly.rank, []).append(anomaly)
    findings = []
    for rank, own in by_rank.items():
        if len(own) < 2 and abs(own[0].score) < _LONE:
            continue
        own.sort(key=lambda a: (a.step, int(index.sites.position[a.site])))
        first, name = own[0], index.sites.name(own[0].site)
        value = f"{first.statistic} {first.value:.4g}, " if np.isfinite(first.value) else ""
        times = f" ({len(own)} cells in all)" if len(own) > 1 else ""
        findings.append(
            Finding(
                kind="replica",
                sentence=f"Rank {rank} is unlike its replicas from step {first.step} on, first {name}: {value}"
                f"{abs(first.score):.0f} deviations {'above' if first.score > 0 else 'below'} theirs{times}.",
                step=first.step,
                rank=rank,
                node=str(index.sites["node"][first.site]),
                site=name,
                score=first.score,
            )
        )
    if len(findings) > _MOST_EPISODES:
        ranks = places(sorted(by_rank))
        return [replace(findings[0], sentence=f"{len(findings)} ranks are unlike their replicas: {ranks}.")]
    return findings
