"""Compare two runs: match, measure, bound, decide, tell."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.core.comparison import Comparison, ContextDifference, Finding, RunIdentity, Summary
from msprobe.core.errors import ComparisonError
from msprobe.core.matching.extras import extra_findings, without_extras
from msprobe.core.matching.mapping import Mapping
from msprobe.core.matching.mapping_file import read_mapping
from msprobe.core.matching.micro_steps import whole_steps
from msprobe.core.matching.pairing import PairedRanks, combine, find_pairs
from msprobe.core.matching.rows import match_rows
from msprobe.core.matching.sites import match_sites
from msprobe.core.merging.sides import (
    SIDES,
    AnyRank,
    AnyRun,
    Sides,
    bring_together,
    check_ranks,
    hubs_of,
    like,
    place_of,
    settle,
    told_layouts,
)
from msprobe.core.run.reader import open_run
from msprobe.core.scope import Scope, StepRanges, few, scope_of
from msprobe.core.sites import NodeKind
from msprobe.core.verdicts.constants import Constants, read_constants
from msprobe.core.verdicts.errors import Errors, measure_errors
from msprobe.core.verdicts.facts import FactTable, differing_facts, differing_headers
from msprobe.core.verdicts.floors import hold_to_golden, hold_to_noise
from msprobe.core.verdicts.judging import judge
from msprobe.core.verdicts.pair_records import pair_records
from msprobe.core.verdicts.sources import Judged, find_sources
from msprobe.core.verdicts.story import count_verdicts, exit_code, measure_coverage, row_findings, run_verdict, tell
from msprobe.core.verdicts.table import PairTable, RankMatch, build_table
from msprobe.core.verdicts.tensors import TensorReader, compare_columns
from msprobe.core.verdicts.tokens import layout_findings
from msprobe.core.verdicts.view import pair_columns

if TYPE_CHECKING:
    from msprobe.core.merging.rules import LayoutRule
    from msprobe.core.run.reader import Run

Progress = Callable[[Iterable[int]], Iterable[int]]


def compare_runs(  # noqa: PLR0913 -- one keyword for each option of the command
    candidate: str | Path | Run,
    reference: str | Path | Run,
    *,
    noise: str | Path | Run | None = None,
    golden: str | Path | Run | None = None,
    mapping: str | Path | Mapping | None = None,
    ready: Sequence[Mapping] = (),
    swap: bool = False,
    min_coverage: float | None = None,
    comparators: Sequence[Any] = (),
    constants: str | Path | None = None,
    ranks: Iterable[int] = (),
    steps: StepRanges = (),
    merge: bool | None = None,
    parallel: Sides = (None, None),
    layout_rules: Sequence[LayoutRule] = (),
    progress: bool = False,
) -> Comparison:
    """Compares a candidate run with a reference run, over all common steps and ranks.

    Where the two spread the work over ranks in different ways, each is compared as one whole model.

    Args:
        candidate: The run in doubt, or its directory.
        reference: The run that is trusted.
        noise: The reference repeated, perturbed by one rounding or in another precision: measures what is normal.
        golden: A run in high precision: asks whether the candidate is further from it than the reference is.
        mapping: A mapping from candidate to reference, or its file.
        ready: Further mappings, of which the best is followed where nothing surer speaks.
        swap: The mapping file was written from reference to candidate.
        min_coverage: Least share of matched records that must be judged.
        comparators: Objects of ``core.protocols``; each adds a column.
        constants: A file that overrides ``core.verdicts.constants``.
        ranks: Only these ranks; empty: all.
        steps: Only steps in these half-open ranges; empty: all.
        merge: Compare as whole models always (True), never (False), or where the meshes differ (None).
        parallel: What the user says of each side's layout, for runs that recorded none.
        layout_rules: How classes of layers are cut over ranks, where neither the runs nor the mapping file tell.
        progress: Show a progress bar on standard error while tensors are read.

    Raises:
        RunError: A run cannot be read.
        MappingError: The mapping file is wrong or does not fit the runs.
        LayoutError: Merging was asked for, and how a run was spread over its ranks is not known.
        ComparisonError: The runs have nothing in common, or are two different models.
    """
    known = read_constants(constants) if constants is not None else Constants()
    if min_coverage is not None:
        known = replace(known, min_coverage=min_coverage)
    rules = _rules(mapping, ready, swap=swap)
    opened = _open(candidate), _open(reference)
    said = told_layouts(parallel, mapping, layout_rules, swap=swap)
    sides, told = bring_together(*opened, said, merge=False if ranks else merge)
    scope = scope_of(*sides, set(ranks), steps)
    bar = _progress(show=progress)
    table = _match(*sides, scope, rules, known)
    judged = judge(table, known, bar, find_hubs=partial(hubs_of, sides[0]))
    if noise is not None:
        judged = hold_to_noise(
            judged, _measured_against(like(_open(noise), sides, said[1]), sides[1], scope, None, known, bar)
        )
    if golden is not None:
        gold = like(_open(golden), sides, said[1])
        by_candidate = _measured_against(sides[0], gold, scope, rules, known, bar)
        by_reference = _measured_against(sides[1], gold, scope, None, known, bar)
        judged = hold_to_golden(judged, by_candidate, by_reference)
    told += tuple(f for name, run in zip(SIDES, sides, strict=True) for f in check_ranks(name, run, known, bar))
    told += tuple(extra_findings([[run.rank(r) for r in scope.ranks] for run in sides], SIDES, scope.steps))
    told += tuple(layout_findings(table, rules.tokens if rules is not None else ("", "")))
    return _report(judged, sides, replace(scope, told=told), comparators, bar)


def _rules(mapping: str | Path | Mapping | None, ready: Sequence[Mapping], *, swap: bool) -> Mapping | None:
    if isinstance(mapping, str | Path):
        return read_mapping(mapping, swap=swap).with_ready(ready)
    if mapping is not None:
        return (mapping.swapped() if swap else mapping).with_ready(ready)
    return Mapping((), "").with_ready(ready) if ready else None


def _open(run: str | Path | Run) -> Run:
    return open_run(run) if isinstance(run, str | Path) else run


def _progress(*, show: bool) -> Progress:
    if not show:
        return lambda items: items

    def bar(items: Iterable[int]) -> Iterable[int]:
        from tqdm import tqdm

        return tqdm(items, desc="comparing tensors", unit="tensor", leave=False, delay=0.5)

    return bar


# --- matching and judging
# -----------------------------------------------------------------------------------------------------


def _match(
    candidate: AnyRun, reference: AnyRun, scope: Scope, rules: Mapping | None, constants: Constants
) -> PairTable:
    matches = [_match_rank(candidate.rank(r), reference.rank(r), r, scope, rules) for r in scope.ranks]
    if rules is not None and not rules.is_ready:
        rules.check_used(
            (node.path for match in matches for node in match.candidate.nodes),
            (node.path for match in matches for node in match.reference.nodes),
        )
    _refuse_different_models(matches, candidate, reference, constants)
    return build_table(matches)


def _match_rank(first: AnyRank, second: AnyRank, rank: int, scope: Scope, rules: Mapping | None) -> RankMatch:
    pairs = find_pairs(first, second, rules)
    sites = without_extras(first, second, match_sites(first, second, pairs))
    settle(first, second, sites, scope.steps)
    paired = PairedRanks(first, second, pairs)
    if pairs.groups:
        paired = combine(first, second, pairs)
        whole = match_sites(paired.candidate, paired.reference, paired.nodes)
        sites = without_extras(paired.candidate, paired.reference, whole)
    left, right, joined = whole_steps(paired.candidate, paired.reference, sites, scope.steps)
    rows = match_rows(left, right, sites, scope.steps)
    return RankMatch(rank, left, right, paired.nodes, sites, rows, joined, place_of(first))


def _refuse_different_models(
    matches: Sequence[RankMatch], candidate: AnyRun, reference: AnyRun, constants: Constants
) -> None:
    modules = paired = 0
    for match in matches:
        for index, node in enumerate(match.candidate.nodes):
            if node.kind is NodeKind.MODULE and node.path and index not in match.nodes.ignored_candidate:
                modules += 1
                paired += bool(match.nodes.partner[index] >= 0)
    if modules and paired < constants.min_paired_modules * modules:
        raise ComparisonError(
            f"{candidate.path} and {reference.path} seem to be two different models: {paired} of {modules} modules "
            "have a partner. If they are one model under other names, say which is which with --mapping layers.yaml."
        )


def _measured_against(  # two runs and what was settled for the main pair
    run: AnyRun, other: AnyRun, scope: Scope, rules: Mapping | None, constants: Constants, bar: Progress
) -> tuple[PairTable, Errors]:
    """Measures a further pair of runs over the same ranks and steps."""
    missing = set(scope.ranks) - (set(run.ranks) & set(other.ranks))
    if missing:
        raise ComparisonError(f"{run.path} or {other.path} lacks rank {few(missing)}, which the compared runs have.")
    table = _match(run, other, scope, rules, constants)
    if not table.matched.any():
        raise ComparisonError(f"{run.path} has no record in common with {other.path}.")
    reader = TensorReader(table)
    return table, measure_errors(table, reader.measure, bar, reader.content_vectors)


# --- the result
# ---------------------------------------------------------------------------------------------------------------


def _report(
    judged: Judged, sides: tuple[AnyRun, AnyRun], scope: Scope, comparators: Sequence[Any], bar: Progress
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
        findings=(
            *scope.findings,
            *scope.told,
            *row_findings(judged),
            *_recording_findings(judged.table, sides),
            *failed,
        ),
        counts=counts,
        context=tuple(_context(judged.table, sides)),
        constants=judged.constants.as_dict(),
        candidate=_identity(sides[0], scope),
        reference=_identity(sides[1], scope),
    )
    pairs = {**pair_columns(judged), **extra.columns}
    return Comparison(summary, pairs, tuple(extra.columns), pair_records(judged.table))


def _identity(run: AnyRun, scope: Scope) -> RunIdentity:
    records = sum(len(run.rank(rank).records["seq"]) for rank in scope.ranks)
    steps = tuple(scope.steps.tolist())
    return RunIdentity(str(run.path), run.header.framework, scope.ranks, steps, records)


def _context(table: PairTable, sides: tuple[AnyRun, AnyRun]) -> list[ContextDifference]:
    headers = [run.header for run in sides]
    found = []
    for name in ("versions", "config", "mesh", "context"):
        found += differing_headers(getattr(headers[0], name), getattr(headers[1], name), name)
    return found + differing_facts([FactTable.of_rank(match) for match in table.matches])


def _recording_findings(table: PairTable, sides: tuple[AnyRun, AnyRun]) -> list[Finding]:
    """Gives what the recordings themselves say is missing or altered."""
    found: dict[str, Finding] = {}
    for side, run in zip(("candidate", "reference"), sides, strict=True):
        if run.header.perturbed:
            found[side] = Finding("perturbed", f"The inputs of the {side} were moved by one rounding on purpose.")
        for match in table.matches:
            recorded = match.candidate if side == "candidate" else match.reference
            for event in recorded.events:
                if event.kind in ("gap", "altered", "drop", "error", "unreduced"):
                    text = f"The {side}: {event.message}" + (f" ({event.node})" if event.node else "")
                    found.setdefault(text, Finding(event.kind, text))
    return list(found.values())
