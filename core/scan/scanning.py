"""``scan``: everything that one run shows to be wrong, without a reference."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from msprobe.core.scan.departures import departures
from msprobe.core.scan.experts import dead_experts
from msprobe.core.scan.findings import FOUND, NOTHING, TOO_LITTLE, Finding, Scan, ordered
from msprobe.core.scan.nonfinite import finding_of
from msprobe.core.scan.origins import Outbreak, made_here, outbreaks
from msprobe.core.scan.recording import recording_notes
from msprobe.core.scan.training import training_findings
from msprobe.core.trend.index import TrendIndex, open_index
from msprobe.core.trend.places import coordinates
from msprobe.core.trend.states import State

if TYPE_CHECKING:
    from msprobe.core.run.reader import Run

#: Least share of records with statistics for "nothing found" to mean anything.
LEAST_MEASURED: Final = 0.5
#: Least number of steps for anomalies over steps; below, the scan says that it could not look for them.
_LEAST_STEPS: Final = 9


def scan(run: Run | TrendIndex | Path | str) -> Scan:
    """Looks through a run for what is wrong.

    Raises:
        RunError: It is no run, or damaged.
        TrendError: It holds no records.
    """
    index = run if isinstance(run, TrendIndex) else open_index(run)
    ranks = index.manifest.ranks
    found = list(outbreaks(index, _stages(index)))
    skips = [step for each in ranks for step, _, _ in each.event_texts.get("scaler_skip", [])]
    meshes = {each.rank: each.mesh for each in ranks}
    findings = [finding_of(index, o, meshes) for o in found if not _by_scaler(index, o, skips)]
    scaled = [o.step for o in found if _by_scaler(index, o, skips)]
    before = min((o.step for o in found if o.lasting and o.step not in scaled), default=math.inf)
    findings += departures(index, before=before)
    findings += training_findings(index, before=before, skipped=[o.step for o in found if not o.lasting])
    findings += list(dead_experts(index, before=before))
    notes = [*_scaler_notes(scaled), *_what_was_not_looked_for(index), *recording_notes(ranks)]
    return _result(index, ordered(findings), tuple(notes))


def _stages(index: TrendIndex) -> dict[int, int]:
    return {each.rank: coordinates(each.mesh).get("pp", 0) for each in index.manifest.ranks}


def _by_scaler(index: TrendIndex, outbreak: Outbreak, skips: list[int]) -> bool:
    """Tells whether a gradient scaler left the update out, as it is there for.

    Equal skips are counted, not listed, so of a step whose parameters stayed finite any skip at all is enough; of the
    last step it is not known what its parameters became, so it must be listed itself.
    """
    if outbreak.lasting:
        return outbreak.step == int(index.steps[-1]) and outbreak.step in skips
    return bool(skips)


def _scaler_notes(steps: list[int]) -> list[str]:
    if not steps:
        return []
    shown = ", ".join(map(str, steps[:8])) + (", ..." if len(steps) > 8 else "")
    plural = "s" if len(steps) > 1 else ""
    return [
        f"The gradient scaler met non-finite gradients at step{plural} {shown} and skipped the update: as it should."
    ]


def _what_was_not_looked_for(index: TrendIndex) -> list[str]:
    notes = []
    if len(index.steps) < _LEAST_STEPS:
        notes.append(f"Only {len(index.steps)} steps are recorded: too few to tell what is unlike the steps before.")
    if not len(index.sites.edges):
        notes.append(
            "No data flow was recorded (trace=True records it): what comes first is judged by order of execution."
        )
    return notes


def _measured_share(index: TrendIndex) -> float:
    files = [block.over_sites for block in index.manifest.blocks]
    rows = index.store.read(files, "sum(cells) AS cells, max(state) AS worst", "", [])
    if not len(rows["cells"]) or int(rows["worst"][0]) <= State.UNMEASURED:
        return 0.0
    tiles = [tile.file for block in index.manifest.blocks for tile in block.tiles]
    bad = index.store.read(tiles, "count(*) AS n", "state = ?", [int(State.UNMEASURED)])
    return 1 - int(bad["n"][0]) / max(1, int(rows["cells"][0]))


def _result(index: TrendIndex, findings: tuple[Finding, ...], notes: tuple[str, ...]) -> Scan:
    recorded = {
        "records": index.manifest.rows, "ranks": len(index.ranks), "steps": len(index.steps), "sites": len(index.sites),
    }  # fmt: skip
    share = _measured_share(index)
    if findings:
        return Scan(findings[0].sentence, findings, notes, FOUND, recorded)
    counted = [
        f"{recorded[what]:,} {what[:-1] if recorded[what] == 1 else what}" for what in ("records", "ranks", "steps")
    ]
    looked = ", ".join(counted)
    if share < LEAST_MEASURED:
        sentence = f"Too little can be judged: {share:.0%} of {looked} hold statistics. Record with what=statistics."
        return Scan(sentence, findings, notes, TOO_LITTLE, recorded)
    return Scan(f"Nothing is wrong in what was recorded ({looked}).", findings, notes, NOTHING, recorded)


def mark_origins(index: TrendIndex) -> None:
    """Tells an index where NaN arose, so that its pictures show these cells as ``State.NAN_MADE``."""
    rows = [np.zeros((0, 3), np.int64)]
    for outbreak in outbreaks(index, _stages(index)):
        sites, ranks = made_here(outbreak)
        rows.append(np.stack([np.full(len(sites), outbreak.step), sites, ranks], axis=1))
    index.origins = np.concatenate(rows)
