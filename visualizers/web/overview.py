"""What the overview shows: the sentence, what it covers, the sources with their rulers, what differs, the strip."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.visualizers.marks import MARKS
from msprobe.visualizers.web.alerts import alerts
from msprobe.visualizers.web.graph_view import errors_of, strict, way_to
from msprobe.visualizers.web.panel import row_data
from msprobe.visualizers.web.strip import strip_cells
from msprobe.visualizers.wording import printable

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison, Source
    from msprobe.visualizers.web.selection import PairIndex

#: Rows of a source's card: what went in, what came out.
_CARD_ROWS = 6


def overview(comparison: Comparison, index: PairIndex) -> dict[str, Any]:
    """Gives all that the first page needs, as plain data."""
    document: dict[str, Any] = json.loads(comparison.summary_json())
    document["sources"] = [
        {**said, **_card(index, source)}
        for said, source in zip(document["sources"], comparison.summary.sources, strict=True)
    ]
    document["pairs"] = len(comparison)
    document["nodes"] = [len(tree) - 1 for tree in index.trees]
    document["axes"] = {"steps": index.steps, "ranks": index.ranks, "micro_steps": index.micro_steps}
    document["verdicts"] = [{"name": mark.verdict, "meaning": mark.meaning} for mark in MARKS]
    document["classes"] = sorted({printable(name) for tree in index.trees for name in tree.classes if name})[:500]
    formats = (index.pairs[f"{side}_dtype"].tolist() for side in ("candidate", "reference"))
    document["dtypes"] = sorted({str(name) for column in formats for name in set(column) if name})
    document["strip"] = strip_cells(index)
    document["alerts"] = alerts(index.records)
    shown: dict[str, Any] = strict(document)
    return shown


def _card(index: PairIndex, source: Source) -> dict[str, Any]:
    """Gives where a source is in the trees, and the rows that show it."""
    row = source.row
    if not 0 <= row < len(index.severity):
        return {"c": -1, "r": -1, "way": [], "rows": []}
    nodes = [int(index.nodes[side][row]) for side in (0, 1)]
    side = 0 if nodes[0] > 0 else 1
    pairs = index.pairs
    same = np.ones(len(index.severity), dtype=bool)
    for name in ("step", "rank", "micro_step"):
        same &= pairs[name] == pairs[name][row]
    same &= index.nodes[side] == nodes[side]
    rows = np.flatnonzero(same & (index.backward == index.backward[row]))
    if len(rows) > _CARD_ROWS:
        worst = rows[np.argsort(index.severity[rows], kind="stable")[: _CARD_ROWS - 1]]
        rows = np.unique([*worst.tolist(), row])
    return {
        "c": nodes[0],
        "r": nodes[1],
        "way": way_to(index, side, nodes[side]) if nodes[side] > 0 else [],
        "rows": [row_data(index, int(r)) for r in rows],
        "errors": errors_of(index, row),
    }
