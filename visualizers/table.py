"""Tell a comparison in a terminal: the short story first, then the rows that prove it."""

from __future__ import annotations

import math
import os
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msprobe.visualizers import story
from msprobe.visualizers.circumstances import circumstances, shown_value
from msprobe.visualizers.marks import MARK_OF, MARKS, RUN_MARK_OF, Mark, word
from msprobe.visualizers.numerals import count, measured, number, plural, share
from msprobe.visualizers.rows import in_epsilon, one_sided, roundoff, row_format, row_node, row_place, telling_rows
from msprobe.visualizers.wording import printable, shorten_head, shorten_tail, width_of, wrap

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from msprobe.core.comparison import Comparison, Source

#: Width where there is no terminal to ask, and the narrowest that is laid out.
_DEFAULT_WIDTH = 120
_NARROWEST = 64

#: Prose is easier to read when its lines are not too long.
_PROSE_WIDTH = 110

#: A story is read, not searched: how much of each part is told.
_MOST_SOURCES, _MOST_FINDINGS, _MOST_DIFFERENCES = 8, 16, 12

#: Columns of the table: heading, alignment, which is added first where there is room (0: always there).
_COLUMNS = (
    ("verdict", "<", 0),
    ("node", "<", 0),
    ("site", "<", 0),
    ("step", ">", 2),
    ("rank", ">", 1),
    ("error eps", ">", 0),
    ("bound eps", ">", 0),
    ("format", "<", 4),
    ("why", "<", 3),
)

#: Columns that may be cut when the terminal is narrow, and how narrow they may get.
_LEAST = {1: 28, 2: 24, 8: 50}

#: Columns that are cut further, in this order, when even the narrowest layout is too wide.
_NARROWER = {2: 12, 1: 12}

#: Directions as the table writes them.
_SHORT = {"forward": "fwd", "backward": "bwd", "recompute": "re-fwd", "reduce": "red", "update": "upd"}


@dataclass(frozen=True, slots=True)
class Table:
    """The story and the most telling rows as plain text."""

    name = "table"
    file_name = ""
    summary = "The verdict, its sources and the most telling rows as text."

    #: How many rows the table shows.
    limit: int = 20
    #: How wide the text may be; None asks the terminal.
    width: int | None = None
    #: Whether to colour; None colours a terminal unless NO_COLOR is set.
    colour: bool | None = None
    #: Whether to keep to ASCII; None asks the encoding of the output.
    ascii: bool | None = None

    def render(self, comparison: Comparison) -> str:
        """Gives the text, with a final line break."""
        pen = _Pen(*self._surroundings())
        lines = [
            *_verdict(comparison, pen),
            *_sources(comparison.summary.sources, pen),
            *_coverage(comparison, pen),
            *_findings(comparison, pen),
            *_context(comparison, pen),
            *_table(comparison, self.limit, pen),
        ]
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def _surroundings(self) -> tuple[int, bool, bool]:
        width = self.width or shutil.get_terminal_size((_DEFAULT_WIDTH, 24)).columns
        colour = self.colour
        if colour is None:
            colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        plain = self.ascii
        if plain is None:
            plain = not _encodes(sys.stdout.encoding, "".join(mark.glyph for mark in MARKS))
        return max(_NARROWEST, width), colour, plain


def _encodes(encoding: str | None, text: str) -> bool:
    try:
        text.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


@dataclass(frozen=True, slots=True)
class _Pen:
    """How to write: width, colour, ASCII."""

    width: int
    colour: bool
    ascii: bool

    def paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self.colour and text else text

    def bold(self, text: str) -> str:
        return self.paint(text, "1")

    def faint(self, text: str) -> str:
        return self.paint(text, "2")

    def glyph(self, mark: Mark) -> str:
        return mark.ascii if self.ascii else mark.glyph

    def sign(self, mark: Mark) -> str:
        return self.paint(self.glyph(mark), mark.colour)

    def prose(self, text: str, indent: str = "") -> list[str]:
        return wrap(self.encodable(printable(text)), min(self.width, _PROSE_WIDTH), indent)

    def encodable(self, text: str) -> str:
        return text.encode("ascii", "backslashreplace").decode() if self.ascii else text


def _verdict(comparison: Comparison, pen: _Pen) -> Iterator[str]:
    summary = comparison.summary
    mark = RUN_MARK_OF[word(summary.verdict)]
    title = f"{pen.glyph(mark)} {word(summary.verdict)}"
    if summary.sources:
        title += f", {plural(len(summary.sources), 'independent source')}"
    yield pen.paint(title, mark.colour.replace("2;", ""))
    yield from (pen.bold(line) for line in pen.prose(summary.sentence, "  "))
    if len(comparison):
        yield from pen.prose(story.consequence(comparison), "  ")
    yield ""
    for name, run in (("candidate", summary.candidate), ("reference", summary.reference)):
        room = max(20, pen.width - 14)
        yield f"  {pen.faint(name)}   {pen.encodable(shorten_head(printable(run.path), room))}"
        yield f"  {'':9}   {pen.faint(shorten_tail(pen.encodable(story.run_line(run)), room))}"


def _sources(sources: Sequence[Source], pen: _Pen) -> Iterator[str]:
    if not sources:
        return
    yield ""
    yield pen.bold("Independent sources")
    for place, source in enumerate(sources[:_MOST_SOURCES], start=1):
        mark = MARK_OF.get(word(source.verdict), MARK_OF["introduced"])
        yield ""
        yield f"{place:>3} {pen.sign(mark)} {pen.bold(pen.encodable(story.source_name(source)))}"
        for text in (story.source_place(source), story.source_error(source), story.source_reach(source)):
            yield from pen.prose(text, "      ") if text else ()
        for evidence in source.evidence:
            first, *rest = pen.prose(evidence, "        ")
            yield f"      - {first.lstrip()}"
            yield from rest
    yield from _left_out(len(sources) - _MOST_SOURCES, pen)


def _left_out(number_of: int, pen: _Pen) -> Iterator[str]:
    if number_of > 0:
        yield pen.faint(f"  and {count(number_of)} more (summary.json lists all)")


def _coverage(comparison: Comparison, pen: _Pen) -> Iterator[str]:
    yield ""
    yield pen.bold("Coverage")
    for name, value, counts in story.coverage_lines(comparison.summary):
        yield f"  {name:8} {share(value):>7}   {pen.faint(counts)}"
    yield ""
    known = [mark for mark in MARKS if comparison.summary.counts.get(mark.verdict)]
    line = "  "
    for mark in known:
        text = f"{pen.glyph(mark)} {mark.verdict} {count(comparison.summary.counts[mark.verdict])}"
        if width_of(_without_paint(line)) + len(text) > pen.width and line.strip():
            yield line
            line = "  "
        line += pen.paint(text, mark.colour) + "   "
    if line.strip():
        yield line
    for verdict in ("inconclusive", "unmatched"):
        for reason, number_of in story.reasons(comparison, verdict):
            first, *rest = pen.prose(f"{count(number_of)} {verdict}: {reason}", "    ")
            yield from (f"  - {first.lstrip()}", *rest)


def _without_paint(text: str) -> str:
    kept, _, rest = text.partition("\x1b[")
    while rest:
        _, _, rest = rest.partition("m")
        piece, _, rest = rest.partition("\x1b[")
        kept += piece
    return kept


def _findings(comparison: Comparison, pen: _Pen) -> Iterator[str]:
    if not comparison.summary.findings:
        return
    yield ""
    yield pen.bold("Findings")
    for finding in comparison.summary.findings[:_MOST_FINDINGS]:
        first, *rest = pen.prose(f"{finding.kind}: {finding.text}", "    ")
        yield f"  - {first.lstrip()}"
        yield from rest
    yield from _left_out(len(comparison.summary.findings) - _MOST_FINDINGS, pen)


def _context(comparison: Comparison, pen: _Pen) -> Iterator[str]:
    found = circumstances(comparison.summary.context, _MOST_DIFFERENCES)
    if not comparison.summary.context:
        return
    yield ""
    yield pen.bold("What else differs") + pen.faint("   candidate | reference")
    kinds = [printable(difference.kind) for difference in found.told]
    names = [story.difference_name(difference) for difference in found.told]
    kind_column = min(16, max(map(width_of, kinds), default=0))
    column = min(40, max(map(width_of, names), default=0))
    room = max(20, pen.width - column - kind_column - 6)
    for kind, name, difference in zip(kinds, names, found.told, strict=True):
        name = shorten_head(name, column)
        values = " | ".join(shown_value(difference, side) for side in (difference.candidate, difference.reference))
        kind_cell = _fit(shorten_tail(kind, kind_column), kind_column, "<")
        yield pen.encodable(f"  {kind_cell}  {_fit(name, column, '<')}  {shorten_tail(printable(values), room)}")
    if left_out := found.left_out():
        yield pen.faint(f"  {left_out}")


def _table(comparison: Comparison, limit: int, pen: _Pen) -> Iterator[str]:
    rows = telling_rows(comparison, limit)
    if not len(rows):
        return
    yield ""
    yield pen.bold("Most telling pairs") + pen.faint(f"   {count(len(rows))} of {count(len(comparison))}")
    cells = [_cells(comparison, int(row), pen) for row in rows]
    ranks = {*comparison.summary.candidate.ranks, *comparison.summary.reference.ranks}
    keep, widths = _layout(cells, pen.width, without=() if len(ranks) > 1 else ("rank",))
    heading = [_COLUMNS[column][0] for column in keep]
    yield pen.faint(_line([_fit(text, w, _COLUMNS[c][1]) for text, w, c in zip(heading, widths, keep, strict=True)]))
    for row, texts in zip(rows, cells, strict=True):
        mark = MARK_OF[str(comparison.pairs["verdict"][row])]
        fitted = [
            _fit(_cut(texts[column], column, width), width, _COLUMNS[column][1])
            for column, width in zip(keep, widths, strict=True)
        ]
        fitted[0] = pen.paint(fitted[0], mark.colour)
        yield _line(fitted)


def _cells(comparison: Comparison, row: int, pen: _Pen) -> tuple[str, ...]:
    pairs = comparison.pairs
    mark = MARK_OF[str(pairs["verdict"][row])]
    unit = roundoff(pairs, row)
    why = str(pairs["reason"][row])
    if pairs["note"][row]:
        why += f" ({pairs['note'][row]})"
    texts = (
        f"{pen.glyph(mark)} {mark.verdict}",
        row_node(pairs, row),
        _short(row_place(pairs, row)),
        str(pairs["step"][row]),
        str(pairs["rank"][row]),
        _measured_error(pairs, row, unit),
        _bound(float(pairs["bound"][row]), unit),
        row_format(pairs, row),
        printable(why),
    )
    return texts[:1] + tuple(pen.encodable(text) for text in texts[1:])


def _short(place: str) -> str:
    """Abbreviates the direction, which the place of a row starts with."""
    direction, _, rest = place.partition(" ")
    return f"{_SHORT.get(direction, direction)} {rest}"


def _measured_error(pairs: Mapping[str, NDArray[Any]], row: int, unit: float) -> str:
    error = float(pairs["error"][row])
    if math.isinf(error) and (counts := one_sided(pairs, row)):
        return counts
    return _error(error, unit, present=bool(pairs["error_kind"][row]))


def _error(error: float, unit: float, *, present: bool) -> str:
    """Writes an error in epsilon; exact formats have none and show the relative error itself."""
    if error and not unit and present:
        return f"{number(error)} rel"
    return measured(in_epsilon(error, unit) if unit else error, present=present)


def _bound(bound: float, unit: float) -> str:
    return _error(bound, unit, present=not math.isnan(bound))


def _layout(cells: Sequence[tuple[str, ...]], width: int, *, without: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """Chooses which columns fit and how wide each is; the node's path gives way last."""
    natural = [max(width_of(row[c]) for row in cells) for c in range(len(_COLUMNS))]
    natural = [max(n, len(heading)) for n, (heading, _, _) in zip(natural, _COLUMNS, strict=True)]
    least = [min(n, _LEAST.get(c, n)) for c, n in enumerate(natural)]
    keep = [c for c, (_, _, order) in enumerate(_COLUMNS) if not order]
    for _, column in sorted((order, c) for c, (heading, _, order) in enumerate(_COLUMNS) if heading not in without):
        if column not in keep and sum(least[c] + 2 for c in (*keep, column)) <= width + 2:
            keep.append(column)
    keep.sort()
    widths = {c: least[c] for c in keep}
    spare = width + 2 - sum(w + 2 for w in widths.values())
    for column, narrowest in _NARROWER.items():
        less = min(max(0, -spare), max(0, widths[column] - narrowest))
        widths[column] -= less
        spare += less
    for column in _LEAST:
        if column in widths and spare > 0:
            more = min(spare, natural[column] - widths[column])
            widths[column] += more
            spare -= more
    return keep, [widths[c] for c in keep]


def _cut(text: str, column: int, width: int) -> str:
    return shorten_head(text, width) if column == 1 else shorten_tail(text, width)


def _fit(text: str, width: int, side: str) -> str:
    gap = " " * max(0, width - width_of(text))
    return gap + text if side == ">" else text + gap


def _line(cells: Sequence[str]) -> str:
    return "  ".join(cells)
