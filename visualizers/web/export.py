"""One self-contained file for sharing: the pages with their answers inside, of one step, rank and micro-step."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from msprobe.core.errors import MsprobeError
from msprobe.visualizers.web import graph_view
from msprobe.visualizers.web.app import PAGES
from msprobe.visualizers.web.panel import panel
from msprobe.visualizers.web.selection import NOTHING, Selection

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison
    from msprobe.visualizers.web.workspace import View

#: What a file that is mailed around may weigh; the tables of the mildest nodes are left out beyond it.
MOST_BYTES = 5_000_000

#: Where the page keeps its answers.
_PLACE = '<script type="application/json" id="answers">{}</script>'


class ExportError(MsprobeError):
    """The page to export was never built."""


def export(comparison: Comparison, view: View) -> str:
    """Gives the page as text.

    Raises:
        ExportError: This checkout has no built pages.
    """
    single = PAGES / "single.html"
    if not single.is_file():
        raise ExportError("the pages are not built in this checkout: run 'make web' (Node.js 20), or install a wheel.")
    text = single.read_text(encoding="utf-8")
    head, found, tail = text.partition(_PLACE)
    if not found:
        raise ExportError(f"{single}: has no place for the data; build the pages again: make web")
    return f"{head}{_PLACE[: -len('{}</script>')]}{_embeddable(answers(comparison, view))}</script>{tail}"


def answers(comparison: Comparison, view: View) -> dict[str, Any]:
    """Gives what the page would ask the server for, of the place where the first source is."""
    chosen = _arrival(comparison, view)
    index = view.index
    marks = index.marks(chosen)
    rows: dict[str, Any] = {}
    waiting = [(0, 0)]
    while waiting:
        pair = waiting.pop()
        opened = graph_view.open_container(index, chosen, *pair)
        rows[f"{pair[0]}:{pair[1]}"] = opened
        for row in opened:
            inside = _first_of(row)
            if any(not node["leaf"] for side in "cr" for node in row[side]):
                waiting.append(inside)
    pairs = {
        _first_of(row): min([node["own"] for side in "cr" for node in row[side]], default=NOTHING)
        for opened in rows.values()
        for row in opened
    }
    panels: dict[str, Any] = {}
    document: dict[str, Any] = {
        "overview": view.overview,
        "rows": rows,
        "minimap": graph_view.minimap(index, chosen, 600),
        "nodes": [
            [side, node, graph_view.shown_path(index, which, node), tree.classes[node], marks[which].worst(node)]
            for which, (side, tree) in enumerate(zip("cr", index.trees, strict=True))
            for node in range(1, len(tree))
        ],
        "panels": panels,
    }
    room = MOST_BYTES - len(json.dumps(document))
    for pair in sorted(pairs, key=lambda pair: pairs[pair]):
        table = panel(index, chosen, *pair)
        room -= len(json.dumps(table))
        if room < 0:
            break
        panels[f"{pair[0]}:{pair[1]}"] = table
    return document


def _first_of(row: dict[str, Any]) -> tuple[int, int]:
    """Gives the pair of nodes by which a row is known."""
    candidate, reference = (row[side][0]["id"] if row[side] else -1 for side in "cr")
    return candidate, reference


def _arrival(comparison: Comparison, view: View) -> Selection:
    sources = comparison.summary.sources
    index = view.index
    if sources:
        # Of a merged whole a source names the guilty rank; the rows are of the whole.
        rank = sources[0].rank if sources[0].rank in index.ranks else None
        return Selection(sources[0].step, rank, sources[0].micro_step)
    return Selection(_first(index.steps), _first(index.ranks), _first(index.micro_steps))


def _first(values: list[int]) -> int | None:
    return values[0] if values else None


def _embeddable(document: object) -> str:
    """Writes JSON in which no text can end the script element around it."""
    text = json.dumps(document, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
