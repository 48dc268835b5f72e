"""Compare two runs: match, measure, bound, decide, tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.comparison import Comparison, ContextDifference, Finding, RunIdentity, Summary
from msprobe.core.errors import ComparisonError
from msprobe.core.matching.content import parameter_content
from msprobe.core.matching.mapping import Mapping, read_mapping
from msprobe.core.matching.micro_steps import whole_steps
from msprobe.core.matching.nodes import match_nodes
from msprobe.core.matching.rows import match_rows
from msprobe.core.matching.sites import match_sites
from msprobe.core.run.reader import open_run
from msprobe.core.sites import NodeKind
from msprobe.core.verdicts.bounds import local_bounds
from msprobe.core.verdicts.constants import Constants, read_constants
from msprobe.core.verdicts.decide import decide
from msprobe.core.verdicts.errors import Errors, measure_errors, relative
from msprobe.core.verdicts.facts import FactTable, differing_facts, differing_headers
from msprobe.core.verdicts.floors import hold_to_golden, hold_to_noise
from msprobe.core.verdicts.flow import build_flow
from msprobe.core.verdicts.sources import Judged, find_sources
from msprobe.core.verdicts.story import count_verdicts, exit_code, measure_coverage, row_findings, run_verdict, tell
from msprobe.core.verdicts.table import PairTable, RankMatch, build_table
from msprobe.core.verdicts.tensors import TensorReader, compare_columns
from msprobe.core.verdicts.view import pair_columns

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.run.reader import RankRun, Run

StepRanges = Sequence[tuple[int, int | None]]
Progress = Callable[[Iterable[int]], Iterable[int]]


@dataclass(frozen=True)
class Scope:
    """What of two runs is compared, and what is missing on a side."""

    ranks: tuple[int, ...]
    steps: NDArray[np.int64]
    findings: tuple[Finding, ...]


def compare_runs(  # noqa: PLR0913 -- one keyword for each option of the command
    candidate: str | Path | Run,
    reference: str | Path | Run,
    *,
    noise: str | Path | Run | None = None,
    golden: str | Path | Run | None = None,
    mapping: str | Path | None = None,
    swap: bool = False,
    min_coverage: float | None = None,
    comparators: Sequence[Any] = (),
    constants: str | Path | None = None,
    ranks: Iterable[int] = (),
    steps: StepRanges = (),
    progress: bool = False,
) -> Comparison:
    """Compares a candidate run with a reference run, over all common steps and ranks.

    Args:
        candidate: The run in doubt, or its directory.
        reference: The run that is trusted.
        noise: The reference repeated, perturbed by one rounding or in another precision: measures what is normal.
        golden: A run in high precision: asks whether the candidate is further from it than the reference is.
        mapping: A mapping file from candidate to reference.
        swap: The mapping file was written from reference to candidate.
        min_coverage: Least share of matched records that must be judged.
        comparators: Objects of ``core.protocols``; each adds a column.
        constants: A file that overrides ``core.verdicts.constants``.
        ranks: Only these ranks; empty: all.
        steps: Only steps in these half-open ranges; empty: all.
        progress: Show a progress bar on standard error while tensors are read.

    Raises:
        RunError: A run cannot be read.
        MappingError: The mapping file is wrong or does not fit the runs.
        ComparisonError: The runs have nothing in common, or are two different models.
    """
    known = read_constants(constants) if constants is not None else Constants()
    if min_coverage is not None:
        known = replace(known, min_coverage=min_coverage)
    rules = read_mapping(mapping, swap=swap) if mapping is not None else None
    sides = _open(candidate), _open(reference)
    scope = _scope(*sides, set(ranks), steps)
    bar = _progress(show=progress)
    table = _match(*sides, scope, rules, known)
    judged = _judge(table, known, bar)
    if noise is not None:
        judged = hold_to_noise(judged, _measured_against(_open(noise), sides[1], scope, None, known, bar))
    if golden is not None:
        gold = _open(golden)
        by_candidate = _measured_against(sides[0], gold, scope, rules, known, bar)
        by_reference = _measured_against(sides[1], gold, scope, None, known, bar)
        judged = hold_to_golden(judged, by_candidate, by_reference)
    return _report(judged, sides, scope, comparators, bar)


def _open(run: str | Path | Run) -> Run:
    return open_run(run) if isinstance(run, str | Path) else run


def _progress(*, show: bool) -> Progress:
    if not show:
        return lambda items: items

    def bar(items: Iterable[int]) -> Iterable[int]:
        from tqdm import tqdm

        return tqdm(items, desc="comparing tensors", unit="tensor", leave=False, delay=0.5)

    return bar


# --- what is compared
# ---------------------------------------------------------------------------------------------------------


def _scope(candidate: Run, reference: Run, ranks: set[int], steps: StepRanges) -> Scope:
    findings: list[Finding] = []
    chosen = [{rank for rank in run.ranks if not ranks or rank in ranks} for run in (candidate, reference)]
    common = sorted(chosen[0] & chosen[1])
    findings += _missing("rank", *chosen)
    if not common:
        held = f"{_few(candidate.ranks)} in {candidate.path}, {_few(reference.ranks)} in {reference.path}"
        asked = f"rank {_few(ranks)} is not in both runs" if ranks else "the two runs have no rank in common"
        raise ComparisonError(f"{asked}. Ranks: {held}.")
    sets = [_steps_of(run, common, steps) for run in (candidate, reference)]
    findings += _missing("step", *sets)
    if not sets[0] & sets[1]:
        steps_c, steps_r = (_few(_steps_of(run, common, ())) for run in (candidate, reference))
        asked = "none of the steps asked for is in both runs" if steps else "the two runs have no step in common"
        raise ComparisonError(f"{asked}. Steps: {steps_c} in {candidate.path}, {steps_r} in {reference.path}.")
    return Scope(tuple(common), np.array(sorted(sets[0] & sets[1]), dtype=np.int64), tuple(findings))


def _steps_of(run: Run, ranks: Sequence[int], wanted: StepRanges) -> set[int]:
    found = {step for rank in ranks for step in run.rank(rank).steps}
    if not wanted:
        return found
    return {step for step in found if any(low <= step and (high is None or step < high) for low, high in wanted)}


def _missing(what: str, candidate: set[int], reference: set[int]) -> list[Finding]:
    found = []
    for side, missing in (("candidate", reference - candidate), ("reference", candidate - reference)):
        if missing:
            plural = "s" if len(missing) > 1 else ""
            found.append(Finding(f"missing {what}", f"The {side} lacks {what}{plural} {_few(missing)}: not compared."))
    return found


def _few(numbers: Iterable[int]) -> str:
    ordered = sorted(numbers)
    if len(ordered) <= 8:
        return ", ".join(map(str, ordered)) or "none"
    return f"{ordered[0]} to {ordered[-1]} ({len(ordered)} in all)"


# --- matching and judging
# -----------------------------------------------------------------------------------------------------


def _match(candidate: Run, reference: Run, scope: Scope, rules: Mapping | None, constants: Constants) -> PairTable:
    matches = [_match_rank(candidate.rank(r), reference.rank(r), r, scope, rules) for r in scope.ranks]
    if rules is not None:
        rules.check_used(
            (node.path for match in matches for node in match.candidate.nodes),
            (node.path for match in matches for node in match.reference.nodes),
        )
    _refuse_different_models(matches, candidate, reference, constants)
    return build_table(matches)


def _match_rank(candidate: RankRun, reference: RankRun, rank: int, scope: Scope, rules: Mapping | None) -> RankMatch:
    nodes = match_nodes(
        candidate.nodes,
        reference.nodes,
        mapping=rules,
        candidate_content=parameter_content(candidate),
        reference_content=parameter_content(reference),
    )
    sites = match_sites(candidate, reference, nodes)
    left, right, joined = whole_steps(candidate, reference, sites, scope.steps)
    return RankMatch(rank, left, right, nodes, sites, match_rows(left, right, sites, scope.steps), joined)


def _refuse_different_models(
    matches: Sequence[RankMatch], candidate: Run, reference: Run, constants: Constants
) -> None:
    modules = paired = 0
    for match in matches:
        for index, node in enumerate(match.candidate.nodes):
            if node.kind is NodeKind.MODULE and node.path:
                modules += 1
                paired += bool(match.nodes.partner[index] >= 0)
    if modules and paired < constants.min_paired_modules * modules:
        raise ComparisonError(
            f"{candidate.path} and {reference.path} seem to be two different models: {paired} of {modules} modules "
            "have a partner. If they are one model under other names, say which is which with --mapping layers.yaml."
        )


def _judge(table: PairTable, constants: Constants, bar: Progress) -> Judged:
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # NaN and Inf are data here
        errors = measure_errors(table, TensorReader(table).measure, bar)
        flow = build_flow(table)
        bounds = local_bounds(table, errors, flow, constants)
        decisions = decide(table, errors, bounds, flow, constants)
        return Judged(table, errors, relative(errors, table), bounds, flow, decisions, constants)


def _measured_against(  # two runs and what was settled for the main pair
    run: Run, other: Run, scope: Scope, rules: Mapping | None, constants: Constants, bar: Progress
) -> tuple[PairTable, Errors]:
    """Measures a further pair of runs over the same ranks and steps."""
    missing = set(scope.ranks) - (set(run.ranks) & set(other.ranks))
    if missing:
        raise ComparisonError(f"{run.path} or {other.path} lacks rank {_few(missing)}, which the compared runs have.")
    table = _match(run, other, scope, rules, constants)
    if not table.matched.any():
        raise ComparisonError(f"{run.path} has no record in common with {other.path}.")
    return table, measure_errors(table, TensorReader(table).measure, bar)


# --- the result
# ---------------------------------------------------------------------------------------------------------------


def _report(
    judged: Judged, sides: tuple[Run, Run], scope: Scope, comparators: Sequence[Any], bar: Progress
) -> Comparison:
    counts, coverage = count_verdicts(judged), measure_coverage(judged)
    verdict = run_verdict(counts, coverage, judged.constants, partial=bool(scope.findings))
    sources = find_sources(judged)
    extra = compare_columns(judged.table, comparators, bar)
    failed = [Finding("comparator", f"Comparator {name} failed: {why}") for name, why in extra.failures.items()]
    summary = Summary(
        verdict=verdict.value,
        sentence=tell(judged, verdict, sources, coverage, missing=[finding.text for finding in scope.findings]),
        exit_code=exit_code(verdict),
        coverage=coverage,
        sources=sources,
        findings=(*scope.findings, *row_findings(judged), *_recording_findings(judged.table, sides), *failed),
        counts=counts,
        context=tuple(_context(judged.table, sides)),
        constants=judged.constants.as_dict(),
        candidate=_identity(sides[0], scope),
        reference=_identity(sides[1], scope),
    )
    return Comparison(summary, {**pair_columns(judged), **extra.columns}, tuple(extra.columns))


def _identity(run: Run, scope: Scope) -> RunIdentity:
    records = sum(len(run.rank(rank).records["seq"]) for rank in scope.ranks)
    steps = tuple(scope.steps.tolist())
    return RunIdentity(str(run.path), run.header.framework, scope.ranks, steps, records)


def _context(table: PairTable, sides: tuple[Run, Run]) -> list[ContextDifference]:
    headers = [run.header for run in sides]
    found = []
    for name in ("versions", "config", "mesh", "context"):
        found += differing_headers(getattr(headers[0], name), getattr(headers[1], name), name)
    return found + differing_facts([FactTable.of_rank(match) for match in table.matches])


def _recording_findings(table: PairTable, sides: tuple[Run, Run]) -> list[Finding]:
    """Gives what the recordings themselves say is missing or altered."""
    found: dict[str, Finding] = {}
    for side, run in zip(("candidate", "reference"), sides, strict=True):
        if run.header.perturbed:
            found[side] = Finding("perturbed", f"The inputs of the {side} were moved by one rounding on purpose.")
        for match in table.matches:
            recorded = match.candidate if side == "candidate" else match.reference
            for event in recorded.events:
                if event.kind in ("gap", "altered", "drop", "error"):
                    text = f"The {side}: {event.message}" + (f" ({event.node})" if event.node else "")
                    found.setdefault(text, Finding(event.kind, text))
    return list(found.values())
