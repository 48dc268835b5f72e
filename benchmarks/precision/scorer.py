"""Records both sides of a case, compares them with msprobe, and scores what the comparison says."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msprobe
from benchmarks.precision.cases import MODES, CleanCase, FaultCase
from benchmarks.precision.effects import effect
from benchmarks.precision.training import Plan, train

if TYPE_CHECKING:
    from torch import nn

    from benchmarks.precision.architectures import Architecture
    from benchmarks.precision.faults import Place
    from msprobe.core.comparison import Comparison, Source

#: At least this share of the matched sites of a clean pair must get a verdict.
MIN_JUDGED = 0.95


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one case. ``passed`` is the score; the rest explains it."""

    group: str
    kind: str
    architecture: str
    seed: int
    mode: str
    passed: bool
    verdict: str
    judged: float
    layer: int = -1
    expected: str = ""
    found: str = ""
    #: Place of the expected source in the list of sources, from 1; 0 when it is not there.
    position: int = 0
    sources: int = 0
    effect: float = float("nan")
    #: Pairs whose numbers differ at all: a clean pair of equal bits proves little.
    differing: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    why: str = ""
    seconds: float = 0.0

    @property
    def place(self) -> str:
        return f"{self.kind} / {self.architecture} / seed {self.seed} / {self.mode}"


class Bench:
    """Runs cases in a folder and keeps reference runs that several cases share."""

    def __init__(self, folder: Path, plan: Plan | None = None) -> None:
        self.folder = folder
        self.plan = plan or Plan()
        self._recorded: dict[object, Path] = {}

    def fault(self, case: FaultCase) -> Outcome:
        """Plants a fault in one of two equal trainings and scores whether its place is named first."""
        started = time.perf_counter()
        plan = replace(self.plan, seed=case.seed)
        candidate, reference = _damaged(case), case.architecture.model(case.seed)
        size = effect(case.fault, candidate, reference, (case.architecture, case.layer, plan))
        candidate_plan, reference_plan = case.fault.plans(plan)
        kept = {"level": case.fault.level, "what": MODES[case.mode]}
        comparison = msprobe.compare(
            self._record(_damaged(case), case.architecture, candidate_plan, kept),
            self._healthy(case, reference_plan, kept),
            comparators=(),
        )
        return _score_fault(case, comparison, size, time.perf_counter() - started)

    def clean(self, case: CleanCase) -> Outcome:
        """Records a pair that differs by rounding only and scores that nothing is called introduced."""
        started = time.perf_counter()
        plan = replace(self.plan, seed=case.seed)
        kept = {"level": case.clean.level, "what": MODES[case.mode]}
        runs = []
        for side in (case.clean.candidate, case.clean.reference):
            with side.around():
                model = side.model(case.architecture, case.seed)
                runs.append(self._record(model, case.architecture, side.planned(plan), kept))
        comparison = msprobe.compare(*runs, comparators=())
        return _score_clean(case, comparison, time.perf_counter() - started)

    def _healthy(self, case: FaultCase, plan: Plan, kept: dict[str, str]) -> Path:
        """Records the healthy twin once for all faults of one model."""
        key = (case.architecture.name, case.seed, plan, *kept.values())
        if key not in self._recorded:
            model = case.architecture.model(case.seed)
            self._recorded[key] = self._record(model, case.architecture, plan, kept)
        return self._recorded[key]

    def _record(self, model: nn.Module, architecture: Architecture, plan: Plan, kept: dict[str, str]) -> Path:
        path = self.folder / f"run-{len(list(self.folder.iterdir())):05d}"
        with msprobe.record(model, path, **kept) as probe:  # type: ignore[arg-type]
            train(model, architecture, plan, probe)
        return path


def _damaged(case: FaultCase) -> nn.Module:
    model = case.architecture.model(case.seed)
    if case.fault.edit:
        case.fault.edit(model, case.architecture, case.layer, case.seed)
    return model


def _score_fault(case: FaultCase, comparison: Comparison, size: float, seconds: float) -> Outcome:
    sources = comparison.summary.sources
    places = [i for i, source in enumerate(sources, start=1) if is_expected(source, case.places, case.fault.place)]
    position = places[0] if places else 0
    named = is_named(comparison, case.fault.place.named)
    return Outcome(
        "fault", case.fault.kind, case.architecture.name, case.seed, case.mode,
        passed=position == 1 and named,
        verdict=comparison.summary.verdict,
        judged=comparison.summary.coverage.judged_share,
        layer=case.layer,
        expected=json.dumps(case.expectation()),
        found=describe(sources[0]) if sources else "no source",
        position=position,
        sources=len(sources),
        effect=size,
        differing=_differing(comparison),
        counts=comparison.summary.counts,
        why="" if named else f"none of the words {case.fault.place.named} is in the report",
        seconds=seconds,
    )  # fmt: skip


def is_expected(source: Source, nodes: tuple[str, ...], place: Place) -> bool:
    """Tells whether a source names the expected module, direction, role and first step."""
    module = source.node.partition("/")[0]
    if nodes and module not in nodes:
        return False
    if place.own_code and not source.own_code and source.node not in nodes:
        return False
    return source.direction == place.direction and source.role in place.roles and source.step == place.step


def is_named(comparison: Comparison, words: tuple[str, ...]) -> bool:
    """Tells whether the report holds one of the words."""
    summary = comparison.summary
    text = [summary.sentence, *(finding.text for finding in summary.findings)]
    for source in summary.sources:
        text += [source.sentence, *source.evidence]
    return not words or any(word in line.lower() for word in words for line in text)


def describe(source: Source) -> str:
    """Says in a line what a source names."""
    own = " (own code)" if source.own_code else ""
    return f"{source.node or '(model)'}{own} {source.direction}/{source.role} {source.argument} step {source.step}"


def _score_clean(case: CleanCase, comparison: Comparison, seconds: float) -> Outcome:
    summary = comparison.summary
    introduced, judged = summary.counts.get("introduced", 0), summary.coverage.judged_share
    return Outcome(
        "clean", case.clean.kind, case.architecture.name, case.seed, case.mode,
        passed=introduced == 0 and judged >= MIN_JUDGED,
        verdict=summary.verdict,
        judged=judged,
        found=describe(summary.sources[0]) if summary.sources else "",
        sources=len(summary.sources),
        differing=_differing(comparison),
        counts=summary.counts,
        why=f"{introduced} introduced, {judged:.1%} judged",
        seconds=seconds,
    )  # fmt: skip


def _differing(comparison: Comparison) -> int:
    return int((comparison.pairs["error"] > 0).sum())
