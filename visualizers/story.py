"""Say what a comparison says in short lines of text, shared by the terminal, Markdown and the page."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from msprobe.visualizers.numerals import ABSENT, count, number, plural, share
from msprobe.visualizers.wording import node_name, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msprobe.core.comparison import Comparison, ContextDifference, RunIdentity, Source, Summary

#: How many reasons of one verdict are told apart.
_REASONS = 3

#: How many numbers a list of ranks or steps names before it is cut.
_NAMED = 6


def ranges(numbers: Sequence[int]) -> str:
    """Writes numbers as ranges.

    >>> ranges((0, 1, 2, 5, 7, 8)), ranges(())
    ('0-2, 5, 7-8', '-')
    """
    spans: list[list[int]] = []
    for value in sorted(set(numbers)):
        if spans and value == spans[-1][1] + 1:
            spans[-1][1] = value
        else:
            spans.append([value, value])
    texts = [f"{low}-{high}" if low != high else str(low) for low, high in spans]
    if len(texts) > _NAMED:
        texts = [*texts[: _NAMED - 1], "...", texts[-1]]
    return ", ".join(texts) or ABSENT


def run_line(run: RunIdentity) -> str:
    """Says which run stands on a side: framework, ranks, steps, records."""
    what = [printable(run.framework) or "unknown framework"]
    what.append(f"{'rank' if len(run.ranks) == 1 else 'ranks'} {ranges(run.ranks)}")
    what.append(f"{'step' if len(run.steps) == 1 else 'steps'} {ranges(run.steps)}")
    what.append(plural(run.records, "record"))
    return ", ".join(what)


def source_place(source: Source) -> str:
    """Says where and when a source was first seen."""
    kind = "own code, seen at " if source.own_code else ""
    where = f"{kind}{source.direction} {source.role} {printable(source.argument)}".rstrip()
    return f"{where}, step {source.step}, micro-step {source.micro_step}, rank {source.rank}"


def source_error(source: Source) -> str:
    """Says how large a source's error is beside its bound, in the same units."""
    if math.isnan(source.error):
        return "error cannot be computed"
    if math.isinf(source.error):
        return "not finite on one side only: there is no distance to measure"
    if math.isnan(source.error_eps) or not source.error_eps:
        return f"error {number(source.error)}, bound {_known(source.bound)}{_times(source)}"
    unit = source.error / source.error_eps
    return (
        f"error {number(source.error_eps)} eps, bound {_known(source.bound / unit)} eps{_times(source)}"
        f"  (relative L2 {number(source.error)})"
    )


def _known(bound: float) -> str:
    return "not known" if bound != bound else number(bound)


def _times(source: Source) -> str:
    return f", {number(source.error / source.bound)} times the bound" if source.bound > 0 else ""


def source_reach(source: Source) -> str:
    """Says at how many pairs a source shows; empty when only once."""
    if source.occurrences <= 1:
        return ""
    text = f"seen at {plural(source.occurrences, 'pair')}"
    if len(source.ranks) > 1:
        text += f", ranks {ranges(source.ranks)}"
    if len(source.steps) > 1:
        text += f", steps {ranges(source.steps)}"
    return text


def source_name(source: Source) -> str:
    """Names the module or operator to look at, with its class."""
    if not source.node and not source.node_class:  # one cause for many modules, outside of the model
        return "(between backward and the optimizer)" if source.direction == "update" else "(the optimizer)"
    name = node_name(source.node)
    return f"{name} ({printable(source.node_class)})" if source.node_class else name


def difference_name(difference: ContextDifference) -> str:
    """Names what differs between the circumstances of the runs."""
    return printable(f"{difference.node}.{difference.name}" if difference.node else difference.name)


def coverage_lines(summary: Summary) -> list[tuple[str, float, str]]:
    """Gives name, share and counts of matched, aligned and judged."""
    c = summary.coverage
    loose = (("candidate", c.unmatched_candidate), ("reference", c.unmatched_reference))
    lacking = "".join(f"; {count(number_of)} only in the {side}" for side, number_of in loose if number_of)
    return [
        ("matched", c.matched_share, f"{count(c.matched)} of {plural(c.records, 'record')}{lacking}"),
        ("aligned", c.aligned_share, f"{count(c.aligned)} of {count(c.matched)} matched"),
        ("judged", c.judged_share, f"{count(c.judged)} of {count(c.matched)} matched"),
    ]


def reasons(comparison: Comparison, verdict: str) -> list[tuple[str, int]]:
    """Gives the commonest reasons of a verdict, each with its count; what is left over is the last."""
    chosen = comparison.pairs["reason"][comparison.pairs["verdict"] == verdict]
    counted = Counter(chosen.tolist()).most_common()
    rest = sum(number_of for _, number_of in counted[_REASONS:])
    return counted[:_REASONS] + ([("other reasons", rest)] if rest else [])


def coverage_sentence(summary: Summary) -> str:
    """Says the coverage in one line."""
    return ", ".join(f"{name} {share(value)} ({counts})" for name, value, counts in coverage_lines(summary))


def consequence(comparison: Comparison) -> str:
    """Says what follows from the verdict: how much needs a look and how much does not."""
    counts = comparison.summary.counts
    agree = counts.get("equal", 0) + counts.get("normal", 0)
    parts = [f"{count(agree)} of {plural(len(comparison), 'pair')} agree within rounding"]
    if counts.get("inherited"):
        parts.append(f"{count(counts['inherited'])} only inherit and need no look")
    if counts.get("suspect"):
        parts.append(f"{count(counts['suspect'])} are suspect")
    if counts.get("inconclusive"):
        parts.append(f"{count(counts['inconclusive'])} could not be judged")
    if counts.get("unmatched"):
        parts.append(f"{count(counts['unmatched'])} have no partner")
    return "; ".join(parts) + "."
