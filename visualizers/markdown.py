"""Write the short story as Markdown, for a pull request or a chat.

Names from a run are put into code spans that cannot be closed from inside; other text has its Markdown escaped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msprobe.visualizers import story
from msprobe.visualizers.circumstances import circumstances, shown_value
from msprobe.visualizers.marks import MARKS, RUN_MARK_OF, word
from msprobe.visualizers.numerals import count, plural, share
from msprobe.visualizers.wording import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from msprobe.core.comparison import Comparison, Source

#: How many sources, findings and differences are told; a comment is read, not searched.
_SOURCES, _FINDINGS, _DIFFERENCES = 5, 10, 10

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#!|~&@])")


class Markdown:
    """A short story for a pull request or a chat."""

    name = "markdown"
    file_name = "comparison.md"
    summary = "A short story for a pull request or a chat."

    def render(self, comparison: Comparison) -> str:
        """Gives the text, with a final line break."""
        summary = comparison.summary
        mark = RUN_MARK_OF[word(summary.verdict)]
        title = f"### {mark.glyph} msprobe: {word(summary.verdict)}"
        if summary.sources:
            title += f", {plural(len(summary.sources), 'independent source')}"
        lines = [title, "", f"**{escape(summary.sentence)}**"]
        if len(comparison):
            lines += ["", escape(story.consequence(comparison))]
        lines += [*_sources(comparison), *_coverage(comparison), *_findings(comparison), *_context(comparison)]
        lines += ["", f"Candidate {code(summary.candidate.path)}, reference {code(summary.reference.path)}."]
        return "\n".join(lines) + "\n"


def escape(text: str) -> str:
    """Takes the meaning from every character that Markdown or HTML would act on."""
    return _SPECIAL.sub(r"\\\1", printable(text))


def code(text: str) -> str:
    """Puts a name into a code span with a fence longer than any run of backticks inside."""
    text = printable(text) or " "
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def code_cell(text: str) -> str:
    """Puts a name into a code span that does not end the cell of a table."""
    return code(text).replace("|", "\\|")


def _sources(comparison: Comparison) -> Iterator[str]:
    sources = comparison.summary.sources
    for place, source in enumerate(sources[:_SOURCES], start=1):
        yield from _source(place, source)
    if len(sources) > _SOURCES:
        yield ""
        yield f"and {count(len(sources) - _SOURCES)} more."


def _source(place: int, source: Source) -> Iterator[str]:
    yield ""
    yield f"{place}. {code(story.source_name(source))} {escape(story.source_place(source))}"
    yield f"   - {escape(story.source_error(source))}"
    if reach := story.source_reach(source):
        yield f"   - {escape(reach)}"
    yield from (f"   - {escape(evidence)}" for evidence in source.evidence)


def _coverage(comparison: Comparison) -> Iterator[str]:
    summary = comparison.summary
    yield ""
    yield "| matched | aligned | judged | " + " | ".join(mark.verdict for mark in MARKS) + " |"
    yield "|" + "---:|" * (3 + len(MARKS))
    shares = [share(value) for _, value, _ in story.coverage_lines(summary)]
    yield "| " + " | ".join([*shares, *(count(summary.counts.get(mark.verdict, 0)) for mark in MARKS)]) + " |"


def _findings(comparison: Comparison) -> Iterator[str]:
    findings = comparison.summary.findings
    if findings:
        yield ""
    for finding in findings[:_FINDINGS]:
        yield f"- {escape(finding.kind)}: {escape(finding.text)}"
    if len(findings) > _FINDINGS:
        yield f"- and {count(len(findings) - _FINDINGS)} more"


def _context(comparison: Comparison) -> Iterator[str]:
    found = circumstances(comparison.summary.context, _DIFFERENCES)
    if not comparison.summary.context:
        return
    yield ""
    yield "| what else differs | candidate | reference |"
    yield "|---|---|---|"
    for difference in found.told:
        name = f"{difference.kind} {story.difference_name(difference)}"
        values = [code_cell(shown_value(difference, side)) for side in (difference.candidate, difference.reference)]
        yield f"| {escape(name)} | {' | '.join(values)} |"
    if left_out := found.left_out():
        yield f"| {left_out} | | |"
