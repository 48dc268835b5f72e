"""Findings about NaN and infinity: who was first, why, and where it went from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.scan.bad_cells import BACKWARD_STAGE, REDUCED_STAGE, UPDATED_STAGE
from msprobe.core.scan.findings import Finding, spans
from msprobe.core.scan.operands import Reason, places, reason_of
from msprobe.core.sites import Direction, Role
from msprobe.core.trend.kinds import KINDS
from msprobe.core.trend.places import coordinates
from msprobe.core.trend.states import NON_FINITE, State

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from msprobe.core.scan.origins import Outbreak
    from msprobe.core.trend.index import TrendIndex

    Meshes = Mapping[int, Mapping[str, Sequence[int]]]

#: Further origins that are listed.
_MOST_OTHERS = 5


def finding_of(index: TrendIndex, outbreak: Outbreak, meshes: Meshes) -> Finding:
    """Gives the finding about a step in which NaN or infinity did harm."""
    flow, cells, first = outbreak.flow, outbreak.cells, int(outbreak.origins[0])
    site, rank, micro_step = int(cells.site[first]), int(cells.rank[first]), int(cells.micro_step[first])
    place = {"site": site, "step": outbreak.step, "rank": rank, "micro_step": micro_step}
    reason = reason_of(index, flow, **place)
    guessed = bool(outbreak.by_order[first]) and not flow.has_source[site]
    spread = propagation(index, outbreak, meshes)
    word = "NaN" if cells.state[first] >= State.NAN else "infinite"
    what = _subject(index, site)
    where = f"At step {outbreak.step}, {_micro(index, micro_step)}rank {rank}, {what} becomes {word}"
    became = ": " + reason.clause if reason.clause else _without_reason(index, site, reason)
    tail = f"; {spread[0]}" if spread else ""
    evidence = [*(f"went in: {text}" for text in reason.operands), *spread]
    if guessed:
        evidence.append("No data flow is recorded there: it is the first in order of execution.")
    evidence += _others(index, outbreak)
    kind = "non-finite" if outbreak.lasting else "skipped"
    if not outbreak.lasting:
        evidence.append("The parameters stayed finite: this update was skipped.")
    return Finding(
        kind=kind, sentence=f"{where}{became}{tail}.", step=outbreak.step, rank=rank, micro_step=micro_step,
        node=str(index.sites["node"][site]), site=index.sites.name(site), evidence=tuple(evidence),
    )  # fmt: skip


def _micro(index: TrendIndex, micro_step: int) -> str:
    files = [block.tiles[0].file for block in index.manifest.blocks[:1] if block.tiles]
    rows = index.store.read(files, "max(micro_step) AS last", "", [])
    return f"micro-step {micro_step}, " if micro_step or int(rows["last"][0]) else ""


def _subject(index: TrendIndex, site: int) -> str:
    """Names a site as a part of a sentence."""
    node, direction, role, argument, _ = index.sites.key(site)
    path, kind = node or "the model", KINDS[int(index.sites["kind"][site])]
    owner = f"{path} ({index.sites['class_name'][site]})" if index.sites["class_name"][site] else path
    if direction == "scalar":
        return f"the scalar {argument}"
    if kind.startswith("gradient"):
        return f"the {kind.replace('gradient', f'gradient of {path}.{argument}', 1)}"
    if role in (Role.PARAMETER.value, Role.BUFFER.value):
        return f"the {role} {path}.{argument}" + (" after the update" if direction == Direction.UPDATE.value else "")
    if direction == Direction.BACKWARD.value:
        return f"the gradient {'that arrives at' if role == Role.INPUT.value else 'that leaves'} {owner}"
    return f"the {role} of {owner}" if role != Role.STATE.value else f"the optimizer state {path}.{argument}"


def _without_reason(index: TrendIndex, site: int, reason: Reason) -> str:
    """Says what is known of a cell whose operands show nothing."""
    role, direction = str(index.sites["role"][site]), str(index.sites["direction"][site])
    entering = role == Role.INPUT.value
    if entering and direction == Direction.FORWARD.value:
        owner = str(index.sites["node"][site]).rpartition("/" if "/" in index.sites["node"][site] else ".")[0]
        if not reason.operands:
            return ", and nothing recorded comes before it: look at the data, or at the code around it"
        return f" while what it was computed from is finite: in the own code of {owner or 'the model'}"
    if entering and direction == Direction.BACKWARD.value and not any(" backward " in text for text in reason.operands):
        return ": it comes from the loss" + (", while the outputs are finite" if reason.operands_finite else "")
    if role in (Role.PARAMETER.value, Role.BUFFER.value) and direction == Direction.FORWARD.value:
        return ", and no step before it shows how: look at the checkpoint, or record the steps before"
    return " while all that went in is finite" if reason.operands_finite else ""


def propagation(index: TrendIndex, outbreak: Outbreak, meshes: Meshes) -> list[str]:
    """Says where the bad values went: reduction, parameters, later steps, each as a clause."""
    flow, cells, first = outbreak.flow, outbreak.cells, int(outbreak.origins[0])
    stage, parameter = flow.stage[cells.site], flow.parameter[cells.site]
    own = parameter == parameter[first] if parameter[first] >= 0 else np.ones(len(cells), bool)
    clauses = []
    reduced = sorted(set(cells.rank[own & (stage == REDUCED_STAGE)].tolist()))
    if reduced:
        group = describe_ranks(reduced, int(cells.rank[first]), meshes, len(index.ranks))
        clauses.append(f"the reduction took it to {group}")
    gradients = stage == BACKWARD_STAGE
    if stage[first] != BACKWARD_STAGE and gradients.any():
        clauses.append(f"it reached the gradients of {_count(parameter[gradients], 'parameter')}")
    updated = (stage == UPDATED_STAGE) | (flow.sites["kind"][cells.site] == KINDS.index("parameter"))
    if updated.any() and not updated[first]:
        ranks = sorted(set(cells.rank[updated].tolist()))
        clauses.append(f"the update put it into {_count(parameter[updated], 'parameter')} on {places(ranks)}")
    return [*clauses, *_later(index, outbreak)] if outbreak.lasting else clauses


def _count(numbers: np.ndarray, noun: str) -> str:
    count = len(set(numbers.tolist()))
    return f"{count} {noun}{'s' if count != 1 else ''}"


def _later(index: TrendIndex, outbreak: Outbreak) -> list[str]:
    """Says how far it went in the steps that follow."""
    later = index.steps[index.steps > outbreak.step]
    if not len(later):
        return ["it is the last step that was recorded"]
    files = [block.over_sites for block in index.blocks_of(later)]
    rows = index.store.read(files, "step, rank", "step > ? AND state >= ?", [outbreak.step, int(NON_FINITE)])
    if not len(rows["step"]):
        return []
    pairs = np.unique(np.stack([rows["step"], rows["rank"]], axis=1), axis=0)
    steps, counts = np.unique(pairs[:, 0], return_counts=True)
    everywhere = steps[counts >= len(index.ranks)]
    clause = (
        f"from step {int(steps[0])} on it is in what {places(pairs[pairs[:, 0] == steps[0]][:, 1].tolist())} compute"
    )
    if len(everywhere) and everywhere[0] != steps[0]:
        clause += f", from step {int(everywhere[0])} on in all {len(index.ranks)}"
    elif len(everywhere):
        clause = f"from step {int(steps[0])} on it is on all {len(index.ranks)} ranks" if len(index.ranks) > 1 else (
            f"from step {int(steps[0])} on it stays"
        )  # fmt: skip
    return [clause]


def describe_ranks(ranks: list[int], origin: int, meshes: Meshes, total: int) -> str:
    """Names a set of ranks by what they share on the mesh with the rank of the origin, where that is all of them.

    >>> meshes = {r: {"ep": (r % 2, 2), "dp": (r // 2, 2)} for r in range(4)}
    >>> describe_ranks([1, 3], 1, meshes, 4)
    'the 2 ranks with ep=1'
    """
    if ranks == [origin]:
        return f"rank {origin} alone"
    if len(ranks) == total:
        return f"all {total} ranks"
    own = coordinates(meshes.get(origin, {}))
    for axis, at in own.items():
        alike = sorted(r for r, mesh in meshes.items() if coordinates(mesh).get(axis) == at)
        if alike == ranks:
            return f"the {len(ranks)} ranks with {axis}={at}"
    return places(ranks) if len(ranks) > 8 else spans(ranks, "rank")


def _others(index: TrendIndex, outbreak: Outbreak) -> list[str]:
    """Lists origins that did not come from the first."""
    cells, others = outbreak.cells, outbreak.origins[1:]
    seen: dict[int, list[int]] = {}
    for row in others.tolist():
        seen.setdefault(int(cells.site[row]), []).append(int(cells.rank[row]))
    listed = [f"also, and not from there: {index.sites.name(s)} on {places(r)}" for s, r in seen.items()]
    more = len(listed) - _MOST_OTHERS
    return listed[:_MOST_OTHERS] + ([f"and {more} further sites"] if more > 0 else [])
