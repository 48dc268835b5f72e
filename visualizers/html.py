"""Write one self-contained page: the story, the strip of all nodes, the sources, and a table to search and sort.

Nothing is fetched: style and script stand in the page, and its content security policy admits these two by their hash
and nothing else. Text from a run passes through ``page.markup``, which cannot make markup of it. Without script the
story still reads; the table needs it.
"""

from __future__ import annotations

import base64
import hashlib
import math
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe.visualizers import story
from msprobe.visualizers.circumstances import circumstances, shown_value
from msprobe.visualizers.marks import MARKS, RUN_MARK_OF, word
from msprobe.visualizers.numerals import count, number, plural, share
from msprobe.visualizers.page.glyphs import glyph, symbols
from msprobe.visualizers.page.markup import Markup, join, path, prose, raw, tag
from msprobe.visualizers.page.payload import MOST_ROWS, payload
from msprobe.visualizers.page.ruler import Scale, ruler
from msprobe.visualizers.page.strip import strip, told_step
from msprobe.visualizers.wording import node_name, printable

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison, Source, Summary

_PARTS = Path(__file__).with_name("page")

#: How many sources and differences of context are in the page; the summary file lists all.
_MOST_SOURCES, _MOST_DIFFERENCES = 200, 40

#: How many sources are open to the eye; the others unfold.
_OPEN_SOURCES = 8

_DEFAULT_MINIMUM = 0.95


class Html:
    """One self-contained page: story, strip of nodes, filterable table."""

    name = "html"
    file_name = "report.html"
    summary = "One self-contained page: story, strip of nodes, filterable table."

    def render(self, comparison: Comparison) -> str:
        """Gives the page."""
        style = (_PARTS / "page.css").read_text(encoding="utf-8")
        script = (_PARTS / "page.js").read_text(encoding="utf-8")
        head = tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("title", f"msprobe: {word(comparison.summary.verdict)}"),
            tag("style", raw(style)),
        )
        body = tag(
            "body",
            symbols(),
            _bar(comparison.summary),
            _main(comparison),
            tag("footer", _footer(comparison.summary)),
            tag("script", raw(payload(comparison)), type="application/json", id="pairs"),
            tag("script", raw(script)),
        )
        return f"<!DOCTYPE html>\n{tag('html', head, body, lang='en')}\n"


def _policy(style: str, script: str) -> str:
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _bar(summary: Summary) -> Markup:
    mark = RUN_MARK_OF[word(summary.verdict)]
    verdict = word(summary.verdict)
    if summary.sources:
        verdict += f" \N{MIDDLE DOT} {plural(len(summary.sources), 'source')}"
    line = tag("path", d="M1 12.5h4l2-8 3 11 2.2-6H17", fill="none", stroke="currentColor", stroke_width=1.6)
    wave = tag("svg", line, width=18, height=18, viewBox="0 0 18 18", aria_hidden="true")
    moon = join(
        tag("circle", cx=8, cy=8, r=5.6, fill="none", stroke="currentColor", stroke_width=1.3),
        tag("path", d="M8 2.4a5.6 5.6 0 0 1 0 11.2z", fill="currentColor"),
    )
    sides = [
        tag("span", tag("span", side[0].upper(), class_=f"side {side}", title=side), run.path)
        for side, run in (("candidate", summary.candidate), ("reference", summary.reference))
    ]
    return tag(
        "header",
        tag("span", wave, "msprobe", class_="brand"),
        tag("span", *sides, class_="sides"),
        tag("span", class_="grow"),
        tag("span", glyph(mark.verdict), verdict, class_=f"pill {mark.verdict}"),
        tag(
            "button",
            tag("svg", moon, width=16, height=16, viewBox="0 0 16 16", aria_hidden="true"),
            class_="tool", id="theme", type="button", title="Light or dark", aria_label="Light or dark",
        ),
        class_="bar",
    )  # fmt: skip


def _main(comparison: Comparison) -> Markup:
    summary = comparison.summary
    left = tag("div", _say(comparison), _strip(comparison), _sources(summary), _findings(summary), class_="main")
    right = tag("aside", _coverage(summary), _counts(comparison), _context(summary))
    return tag("main", left, right, _rows(comparison))


def _section(title: str, label: str, *content: Markup | None, **attributes: str) -> Markup:
    head = tag("div", tag("h2", title), tag("span", label, class_="label"), class_="section")
    return tag("section", head, *content, **attributes)


def _say(comparison: Comparison) -> Markup:
    summary = comparison.summary
    kind = RUN_MARK_OF[word(summary.verdict)].verdict
    names = sorted({node_name(source.node) for source in summary.sources} - {"(root)"}, key=len, reverse=True)
    sentence = tag("p", *_named(printable(summary.sentence), names), class_=f"sentence {kind}")
    text = story.consequence(comparison) if len(comparison) else "There is no pair to judge."
    return tag("section", sentence, tag("p", text, class_="consequence"))


def _named(text: str, names: list[str]) -> list[Markup]:
    """Sets the nodes that a sentence names as code."""
    for place, name in enumerate(names):
        before, found, after = text.partition(name)
        if found:
            return [*_named(before, names[place + 1 :]), tag("code", name), *_named(after, names)]
    return [join(text)]


def _strip(comparison: Comparison) -> Markup | None:
    drawn = strip(comparison)
    if drawn is None:
        return None
    names = [tag("span", glyph(mark.verdict, size=11), mark.verdict) for mark in reversed(MARKS)]
    readout = tag("span", "point at a cell to read it", id="readout", class_="readout", aria_live="polite")
    key = tag("div", readout, *names, class_="key")
    step = told_step(comparison)
    label = "one cell = one module in one layer, coloured by its worst pair"
    if step is not None:
        label += f" at step {step}; sources of every step"
    return _section("All nodes, forward and backward", label, tag("div", drawn, key, class_="card"))


def _sources(summary: Summary) -> Markup | None:
    if not summary.sources:
        return None
    scale = Scale.reaching(value for source in summary.sources for value in _in_epsilon(source))
    cards = [_source(source, scale) for source in summary.sources[:_MOST_SOURCES]]
    more = len(summary.sources) - len(cards)
    note = tag("p", f"and {count(more)} more, listed in summary.json", class_="note") if more > 0 else None
    label = "ruler: error in \N{GREEK SMALL LETTER EPSILON} on a log scale, shaded up to the bound"
    shown, folded = cards[:_OPEN_SOURCES], cards[_OPEN_SOURCES:]
    rest = None
    if folded:
        title = tag("summary", f"{plural(len(folded), 'more source')}, in order of execution")
        rest = tag("details", title, tag("div", *folded, class_="sources"), note, class_="more")
    return _section("Independent sources", label, tag("div", *shown, class_="sources"), rest)


def _source(source: Source, scale: Scale) -> Markup:
    verdict = word(source.verdict)
    name = f" {source.node_class}" if source.node_class else ""
    lines = [*source.evidence, *filter(None, [story.source_reach(source)])]
    return tag(
        "article",
        tag("div", glyph(verdict), path(source.node), class_="top"),
        tag("div", story.source_place(source) + (f" \N{MIDDLE DOT}{name}" if name else ""), class_="meta"),
        _measure(source, verdict, scale),
        tag("ul", *(tag("li", prose(line)) for line in lines)) if lines else None,
        class_="card source",
    )


def _in_epsilon(source: Source) -> tuple[float, ...]:
    """Gives error and bound in epsilon; nothing where the error has no size in it."""
    if math.isnan(source.error_eps) or source.error_eps in (0.0, math.inf):
        return ()
    unit = source.error / source.error_eps
    return source.error_eps, source.bound / unit


def _measure(source: Source, verdict: str, scale: Scale) -> Markup:
    in_epsilon = _in_epsilon(source)
    error, bound = in_epsilon or (source.error, source.bound)
    sign = " \N{GREEK SMALL LETTER EPSILON}" if in_epsilon else ""
    drawn = ruler(error, bound, verdict, scale) if in_epsilon else tag("span")
    known = number(bound) + sign if bound == bound else "not known"
    shown = "not finite" if math.isinf(source.error) else number(error) + sign
    return tag(
        "div",
        drawn,
        tag("div", tag("span", "error", class_="label"), tag("div", shown, class_="figure hot")),
        tag("div", tag("span", "bound", class_="label"), tag("div", known, class_="figure")),
        class_="measure",
    )


def _findings(summary: Summary) -> Markup | None:
    if not summary.findings:
        return None
    lines = [tag("li", tag("span", f.kind, class_="kind"), tag("span", prose(f.text))) for f in summary.findings]
    return _section("Findings", "", tag("div", tag("ul", *lines, class_="findings"), class_="card"))


def _coverage(summary: Summary) -> Markup:
    minimum = float(summary.constants.get("min_coverage", _DEFAULT_MINIMUM))
    blocks = [
        tag(
            "div",
            tag("span", name.capitalize()),
            tag("span", share(value), class_="big"),
            _meter(value, minimum if name == "judged" else None),
            tag("span", counts, class_="label"),
        )
        for name, value, counts in story.coverage_lines(summary)
    ]
    label = f"minimum to judge a run: {100 * minimum:g} %"
    return _section("Coverage", label, tag("div", *blocks, class_="coverage"))


def _meter(value: float, minimum: float | None) -> Markup:
    parts = [tag("rect", x=0, y=3, width=300, height=6, rx=1, class_="meter-track")]
    if value == value:
        parts.append(tag("rect", x=0, y=3, width=round(300 * value, 1), height=6, rx=1, class_="meter-fill"))
    if minimum is not None:
        parts.append(tag("rect", x=round(300 * minimum, 1), y=0, width=1.6, height=12, class_="meter-minimum"))
    return tag(
        "svg", *parts, viewBox="0 0 300 12", preserveAspectRatio="none", width="100%", height=12, aria_hidden="true"
    )


def _counts(comparison: Comparison) -> Markup:
    counts = comparison.summary.counts
    most = max([1, *counts.values()])
    lines: list[Markup] = []
    for mark in MARKS:
        value = counts.get(mark.verdict, 0)
        width = max(1.2, 100 * value / most) if value else 0.0
        box = tag("rect", x=0, y=0, width=round(width, 2), height=8, rx=0.5, class_=f"bar-{mark.verdict}")
        drawn = tag(
            "svg", box, viewBox="0 0 100 8", preserveAspectRatio="none", width="100%", height=8, aria_hidden="true"
        )
        quiet = "" if value else " none"
        lines += [
            glyph(mark.verdict),
            tag("span", mark.verdict, class_=quiet.strip() or None, title=mark.meaning),
            drawn,
            tag("span", count(value), class_=f"figure{quiet}"),
        ]
    return _section("Verdicts", plural(len(comparison), "pair"), tag("div", *lines, class_="counts"))


def _context(summary: Summary) -> Markup | None:
    if not summary.context:
        return None
    found = circumstances(summary.context, _MOST_DIFFERENCES)
    lines = []
    for difference in found.told:
        kind = tag("div", difference.kind, class_="label")
        name = tag("td", kind, path(story.difference_name(difference)))
        sides = (difference.candidate, difference.reference)
        lines.append(tag("tr", name, *(tag("td", shown_value(difference, side)) for side in sides)))
    heads = tag("thead", tag("tr", *(tag("th", title, scope="col") for title in ("", "candidate", "reference"))))
    note = tag("p", found.left_out(), class_="note") if found.left_out() else None
    return _section("What else differs", "", tag("table", heads, tag("tbody", *lines), class_="small"), note)


def _rows(comparison: Comparison) -> Markup:
    total = len(comparison)
    counts = comparison.summary.counts
    chips = [_chip(mark.verdict, counts[mark.verdict]) for mark in MARKS if counts.get(mark.verdict)]
    search = tag("input", id="search", class_="search", type="search", placeholder="Find a node, class, format, reason",
                 aria_label="Find", autocomplete="off", spellcheck="false")  # fmt: skip
    pages = tag(
        "span",
        tag("span", id="place", aria_live="polite"),
        tag("button", "previous", id="previous", type="button", class_="chip"),
        tag("button", "next", id="next", type="button", class_="chip"),
        class_="pages",
    )
    table = tag("table", tag("thead", tag("tr", id="heads")), tag("tbody", id="rows"), class_="grid")
    label = "worst first; a heading sorts, a row opens"
    if total > MOST_ROWS:
        label = f"the worst {count(MOST_ROWS)} of {count(total)}; CSV and Parquet hold all \N{MIDDLE DOT} {label}"
    return _section(
        "Pairs",
        label,
        tag("div", search, *chips, pages, class_="filters"),
        tag("div", table, class_="scroll"),
        tag("noscript", tag("p", "The table needs JavaScript; pairs.csv holds the same rows.", class_="note")),
        class_="rows",
        id="table",
    )


def _chip(verdict: str, value: int) -> Markup:
    return tag(
        "button", glyph(verdict), f"{verdict} {count(value)}",
        class_="chip", type="button", aria_pressed="false", data_verdict=verdict,
    )  # fmt: skip


def _footer(summary: Summary) -> Markup:
    runs = f"candidate: {story.run_line(summary.candidate)}. Reference: {story.run_line(summary.reference)}."
    constants = ", ".join(f"{name} {value:g}" for name, value in summary.constants.items())
    return join(f"{runs[0].upper()}{runs[1:]}", f" Constants: {constants}." if constants else "")
