"""Say what the comparison says: the run's verdict, its exit code, one plain sentence."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.comparison import Coverage, Finding, RunVerdict, Source, Verdict
from msprobe.core.sites import Direction, Role
from msprobe.core.verdicts.sources import Judged, describe_site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from msprobe.core.verdicts.constants import Constants

#: How many parameters a finding names.
_NAMED = 4

#: Exit codes of ``msprobe compare``.
CLEAN, WRONG, BAD_INPUT, TOO_LITTLE = 0, 1, 2, 3


def count_verdicts(judged: Judged) -> dict[str, int]:
    """Counts the rows of each verdict."""
    names, counts = np.unique(judged.decisions.verdict.astype(str), return_counts=True)
    found = dict(zip(names.tolist(), counts.tolist(), strict=True))
    return {verdict.value: int(found.get(verdict.value, 0)) for verdict in Verdict}


def measure_coverage(judged: Judged) -> Coverage:
    """Counts what was matched, aligned and judged."""
    table = judged.table
    matched = table.matched
    by_tokens = judged.errors.tokens.rows & (judged.errors.kind != "")
    aligned = matched & (((table.candidate.shape == table.reference.shape) & ~judged.errors.tokens.rows) | by_tokens)
    conclusive = matched & (judged.decisions.verdict != Verdict.INCONCLUSIVE.value)
    return Coverage(
        records=len(table),
        matched=int(matched.sum()),
        aligned=int(aligned.sum()),
        judged=int(conclusive.sum()),
        unmatched_candidate=int((table.candidate.present & ~table.reference.present).sum()),
        unmatched_reference=int((table.reference.present & ~table.candidate.present).sum()),
        tokens_share=judged.errors.tokens.share,
    )


def run_verdict(counts: dict[str, int], coverage: Coverage, constants: Constants, *, partial: bool) -> RunVerdict:
    """Gives the worst of introduced, suspect, inherited only and clean; inconclusive where too little was judged.

    Too little is also a rank or a step that only one side holds (``partial``): a job that stopped early is not clean.

    What was found stands even where little was judged: too little coverage makes an absence of findings inconclusive,
    not their presence.
    """
    if counts[Verdict.INTRODUCED.value]:
        return RunVerdict.INTRODUCED
    if counts[Verdict.SUSPECT.value]:
        return RunVerdict.SUSPECT
    covered = (
        not partial
        and coverage.judged_share >= constants.min_coverage
        and coverage.matched_share >= constants.min_matched
    )
    if not covered:
        return RunVerdict.INCONCLUSIVE
    return RunVerdict.INHERITED_ONLY if counts[Verdict.INHERITED.value] else RunVerdict.CLEAN


def exit_code(verdict: RunVerdict) -> int:
    """Gives the exit code of a run verdict."""
    if verdict is RunVerdict.INCONCLUSIVE:
        return TOO_LITTLE
    return WRONG if verdict in (RunVerdict.INTRODUCED, RunVerdict.SUSPECT) else CLEAN


def tell(
    judged: Judged, verdict: RunVerdict, sources: Sequence[Source], coverage: Coverage, *, missing: Sequence[str]
) -> str:
    """Gives the one sentence that stands for the whole comparison."""
    matched, share = f"{coverage.matched:,} of {coverage.records:,} records", f"{coverage.judged_share:.1%}"
    if verdict is RunVerdict.INTRODUCED:
        others = len(sources) - 1
        more = (
            f" {others} more independent source{'s' if others > 1 else ''} follow{'' if others > 1 else 's'}."
            if others
            else ""
        )
        return sources[0].sentence + more
    if verdict is RunVerdict.SUSPECT:
        return _tell_suspect(judged)
    if verdict is RunVerdict.INCONCLUSIVE:
        if coverage.records == 0:
            return "Nothing can be said: the two runs have no records in common steps."
        if missing:
            return f"Nothing wrong was found in what both runs hold, but they do not hold the same: {' '.join(missing)}"
        return (
            f"Nothing wrong was found, but too little could be judged to call it clean: {matched} have a partner "
            f"({coverage.matched_share:.1%}), and {share} of these were judged."
        )
    if verdict is RunVerdict.INHERITED_ONLY:
        return f"No place introduces a difference, yet some differ from the start; {share} of {matched} were judged."
    agree = f"The two runs agree: {_closeness(judged)} ({matched} have a partner, {share} of these were judged)."
    differing = _other_formats(judged)
    if not differing.any() or differing[judged.table.matched].all():
        return agree
    first = describe_site(judged.table, _first(judged, differing))
    return f"{agree} Number formats differ in {int(differing.sum()):,} of them, first at the {first}."


def _other_formats(judged: Judged) -> NDArray[np.bool_]:
    """Finds matched rows of quantities whose number formats differ."""
    table = judged.table
    differing: NDArray[np.bool_] = table.matched & (table.candidate.dtype != table.reference.dtype)
    return differing


def _first(judged: Judged, rows: NDArray[np.bool_]) -> int:
    """Gives the first of the marked rows in order of execution."""
    marked = np.flatnonzero(rows)
    table = judged.table
    return int(marked[np.lexsort((table.order[marked], table.rank[marked], table.step[marked]))[0]])


def _closeness(judged: Judged) -> str:
    rows = judged.table.matched
    if bool(judged.errors.equal[rows].all()):
        return "the same bits"
    if bool(judged.errors.identical[rows].all()):
        return "no recorded number differs"
    return "all differences are within rounding"


def _tell_suspect(judged: Judged) -> str:
    rows = np.flatnonzero(judged.decisions.verdict == Verdict.SUSPECT.value)
    first = rows[np.lexsort((judged.table.order[rows], judged.table.step[rows]))][0]
    return (
        f"No single source was found, but differences grow by more than they should; "
        f"the first place is the {describe_site(judged.table, int(first))} at step {int(judged.table.step[first])}."
    )


def _missing_gradients(judged: Judged) -> list[Finding]:
    """Finds parameters that get a gradient on one side only."""
    table, found = judged.table, []
    gradients = table.is_role(Role.GRADIENT) & table.is_direction(Direction.BACKWARD) & ~table.matched
    for side, other in (("candidate", table.reference), ("reference", table.candidate)):
        sites = table.site[gradients & other.present]
        nodes = np.where(
            table.sites.candidate_node[sites] != "",
            table.sites.candidate_node[sites],
            table.sites.reference_node[sites],
        )
        names = list(
            dict.fromkeys(f"{node}.{name}" for node, name in zip(nodes, table.sites.argument[sites], strict=True))
        )
        if names:
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            found.append(Finding("gradient", f"No gradient in the {side}: {', '.join(names[:_NAMED])}{more}."))
    return found


def row_findings(judged: Judged) -> list[Finding]:
    """Gives findings that concern many rows: other formats, non-finite values on both sides, guessed data flow."""
    table, found = judged.table, []
    matched = table.matched
    differing = _other_formats(judged)
    pairs = zip(table.candidate.dtype[differing].tolist(), table.reference.dtype[differing].tolist(), strict=True)
    for (candidate, reference), count in sorted(Counter(pairs).items()):
        rows = differing & (table.candidate.dtype == candidate) & (table.reference.dtype == reference)
        text = f"{count:,} records are {candidate} in the candidate and {reference} in the reference"
        found.append(Finding("format", f"{text}, first the {describe_site(table, _first(judged, rows))}."))
    found += _missing_gradients(judged)
    both = (
        matched
        & (np.nan_to_num(table.candidate.statistics["nan"]) > 0)
        & (np.nan_to_num(table.reference.statistics["nan"]) > 0)
    )
    if both.any():
        first = int(np.flatnonzero(both)[np.argmin(table.order[both])])
        found.append(
            Finding(
                "health",
                f"{int(both.sum()):,} records hold NaN on both sides; first the {describe_site(table, first)}.",
            )
        )
    joined = sum(match.joined_steps for match in table.matches)
    if joined:
        text = f"Compared as wholes, since the sides cut them into different numbers of micro-steps: {joined} step(s)."
        found.append(Finding("micro-steps", text))
    tokens = judged.errors.tokens
    if tokens.rows.any():
        text = f"{int(tokens.rows.sum()):,} records lay out tokens differently on both sides: compared token by token"
        found.append(Finding("tokens", f"{text}, {tokens.share:.1%} of the tokens are on both sides."))
    guessed = judged.flow.by_order & matched
    if guessed.any():
        text = f"The data flow into {int(guessed.sum()):,} records is supposed from the order of execution, not traced."
        found.append(Finding("data flow", text))
    return found
