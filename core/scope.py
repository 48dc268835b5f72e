"""What of two runs is compared: the ranks and steps that both hold, and what one of them lacks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.comparison import Finding
from msprobe.core.errors import ComparisonError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.merging.sides import AnyRun

StepRanges = Sequence[tuple[int, int | None]]


@dataclass(frozen=True)
class Scope:
    """What of two runs is compared, and what is missing on a side."""

    ranks: tuple[int, ...]
    steps: NDArray[np.int64]
    findings: tuple[Finding, ...]
    #: What is told besides: how the sides were brought together, which replicas differ.
    told: tuple[Finding, ...] = ()


def scope_of(candidate: AnyRun, reference: AnyRun, ranks: set[int], steps: StepRanges) -> Scope:
    """Gives the ranks and steps that both runs hold, of those asked for.

    Raises:
        ComparisonError: There are none.
    """
    findings: list[Finding] = []
    chosen = [{rank for rank in run.ranks if not ranks or rank in ranks} for run in (candidate, reference)]
    common = sorted(chosen[0] & chosen[1])
    findings += _missing("rank", *chosen)
    if not common:
        held = f"{few(candidate.ranks)} in {candidate.path}, {few(reference.ranks)} in {reference.path}"
        asked = f"rank {few(ranks)} is not in both runs" if ranks else "the two runs have no rank in common"
        raise ComparisonError(f"{asked}. Ranks: {held}.")
    sets = [_steps_of(run, common, steps) for run in (candidate, reference)]
    findings += _missing("step", *sets)
    if not sets[0] & sets[1]:
        steps_c, steps_r = (few(_steps_of(run, common, ())) for run in (candidate, reference))
        asked = "none of the steps asked for is in both runs" if steps else "the two runs have no step in common"
        raise ComparisonError(f"{asked}. Steps: {steps_c} in {candidate.path}, {steps_r} in {reference.path}.")
    return Scope(tuple(common), np.array(sorted(sets[0] & sets[1]), dtype=np.int64), tuple(findings))


def _steps_of(run: AnyRun, ranks: Sequence[int], wanted: StepRanges) -> set[int]:
    found = {step for rank in ranks for step in run.rank(rank).steps}
    if not wanted:
        return found
    return {step for step in found if any(low <= step and (high is None or step < high) for low, high in wanted)}


def _missing(what: str, candidate: set[int], reference: set[int]) -> list[Finding]:
    found = []
    for side, missing in (("candidate", reference - candidate), ("reference", candidate - reference)):
        if missing:
            plural = "s" if len(missing) > 1 else ""
            found.append(Finding(f"missing {what}", f"The {side} lacks {what}{plural} {few(missing)}: not compared."))
    return found


def few(numbers: Iterable[int]) -> str:
    """Lists numbers, all of them where they are few."""
    ordered = sorted(numbers)
    if len(ordered) <= 8:
        return ", ".join(map(str, ordered)) or "none"
    return f"{ordered[0]} to {ordered[-1]} ({len(ordered)} in all)"
