"""Draw all nodes as one strip: a column for each layer, a row for each module in it, coloured by the worst verdict.

Forward runs to the right and is above, backward below. What is no layer (embedding, final norm, head) is a column of
its own at its place in the order of execution. The strip is of the step in which things first went wrong. Containers
have no cell unless the fault is their own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.visualizers.marks import MARKS, SEVERITY
from msprobe.visualizers.page.markup import Markup, tag
from msprobe.visualizers.rows import encode, nodes, severities
from msprobe.visualizers.wording import node_name, shorten_head

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from msprobe.core.comparison import Comparison

#: What fits: beyond these, columns are pooled (the worst wins) and the rows with the mildest verdicts are left out.
_MOST_COLUMNS, _MOST_ROWS = 160, 24

_WIDTH, _LABEL, _BAND, _ROW, _WIDEST = 960.0, 150.0, 19.0, 11.0, 80.0

#: The first numbered segment makes the layer: ``model.layers.3`` of ``model.layers.3.mlp.up_proj``.
_LAYER = re.compile(r"^(.*?(?:^|\.)\d+)(?:\.|/|$)(.*)$")

#: Every how many layers the axis may name one, and how much room a name wants.
_STRIDES, _LABEL_ROOM = (1, 2, 4, 5, 8, 10, 20, 50, 100, 1000), 24.0

#: Not judged is milder than any judgement: a cell or column shows it only when there is nothing else.
_NOTHING = len(MARKS)


@dataclass
class _Lane:
    """One direction: the severity of each (row, column), and the order of both."""

    columns: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    cells: dict[tuple[int, int], tuple[int, str]] = field(default_factory=dict)
    bands: dict[int, tuple[int, str]] = field(default_factory=dict)

    def put(self, column: str, row: str | None, severity: int, node: str) -> None:
        c = self.columns.setdefault(column, len(self.columns))
        if severity < self.bands.get(c, (_NOTHING + 1, ""))[0]:
            self.bands[c] = (severity, node)
        if row is not None:
            place = (self.rows.setdefault(row, len(self.rows)), c)
            if severity < self.cells.get(place, (_NOTHING + 1, ""))[0]:
                self.cells[place] = (severity, node)


def told_step(comparison: Comparison) -> int | None:
    """Gives the step that the strip is of: where the worst verdict is first met; None for all when all agree.

    After the first wrong step the weights differ, so that everything inherits: one step tells where it began.
    """
    severity = severities(comparison.pairs)
    worst = int(severity.min(initial=_NOTHING))
    if worst > SEVERITY["inherited"]:
        return None
    return int(comparison.pairs["step"][severity == worst].min())


def strip(comparison: Comparison) -> Markup | None:
    """Gives the drawing; None when there is no node to draw."""
    forward, backward = _lanes(comparison)
    if not forward.columns and not backward.columns:
        return None
    parts, y = [_patterns()], 4.0
    for name, lane in (("forward", forward), ("backward", backward)):
        if lane.columns:
            drawn, y = _draw(name, lane, y)
            parts += drawn
    said = "All nodes, coloured by their worst verdict; the table below holds the same."
    return tag("svg", *parts, class_="strip", viewBox=f"0 0 {_WIDTH:g} {y:g}", role="img", aria_label=said)


def _lanes(comparison: Comparison) -> tuple[_Lane, _Lane]:
    nodes, directions, worst = _worst_of_nodes(comparison)
    containers = _containers(nodes)
    leaves = [severity for node, severity in zip(nodes, worst, strict=True) if node.partition("/")[0] not in containers]
    # A container's own fault is shown; what it merely hands on is, where no leaf shows as much.
    shown_containers = max(SEVERITY["introduced"], min(SEVERITY["suspect"], min(leaves, default=_NOTHING) - 1))
    lanes = _Lane(), _Lane()
    for node, backward, severity in zip(nodes, directions, worst, strict=True):
        module = node.partition("/")[0]
        if module in containers and severity > shown_containers:
            continue
        column, row = _place(module)
        lanes[backward].put(column, row, severity, node)
    # Backward meets the layers in the opposite order; one axis serves both.
    columns = list(lanes[0].columns) + [c for c in lanes[1].columns if c not in lanes[0].columns]
    shared = {name: place for place, name in enumerate(columns)}
    moved = {place: shared[name] for name, place in lanes[1].columns.items()}
    lanes[1].cells = {(r, moved[c]): cell for (r, c), cell in lanes[1].cells.items()}
    lanes[1].bands = {moved[c]: cell for c, cell in lanes[1].bands.items()}
    for lane in lanes:
        lane.columns = shared if lane.columns else {}
    return lanes


def _worst_of_nodes(comparison: Comparison) -> tuple[list[str], list[bool], list[int]]:
    """Gives each (node, backward?) in order of first execution with the worst severity of its pairs."""
    pairs: Mapping[str, NDArray[Any]] = comparison.pairs
    if not len(comparison):
        return [], [], []
    backward = np.isin(pairs["direction"], ("backward", "update"))
    names, code = encode(nodes(pairs))
    key = code * 2 + backward
    order = np.lexsort([pairs["order"], pairs["step"]])
    step = told_step(comparison)
    if step is not None:
        told = (pairs["step"] == step) | (pairs["verdict"] == "introduced")
        order = order[told[order]]
    found, first, inverse = np.unique(key[order], return_index=True, return_inverse=True)
    worst = np.full(len(found), _NOTHING)
    np.minimum.at(worst, inverse.ravel(), severities(pairs)[order])
    at = np.argsort(first)
    row = order[first[at]]
    return [names[code[i]] for i in row], [bool(backward[i]) for i in row], [int(worst[i]) for i in at]


def _containers(nodes: list[str]) -> set[str]:
    found = {""}
    for node in nodes:
        parts = node.partition("/")[0].split(".")
        found.update(".".join(parts[:size]) for size in range(1, len(parts)))
    return found


def _place(module: str) -> tuple[str, str | None]:
    """Gives column and row of a module; what is no layer has no row of its own, only the band."""
    found = _LAYER.match(module)
    return (found[1], found[2] or "(layer)") if found else (module, None)


def _draw(name: str, lane: _Lane, y: float) -> tuple[list[Markup], float]:
    columns = len(lane.columns)
    pool = -(-columns // _MOST_COLUMNS)
    width = min(_WIDEST, (_WIDTH - _LABEL) / -(-columns // pool))
    arrow = "\N{RIGHTWARDS ARROW}" if name == "forward" else "\N{LEFTWARDS ARROW}"
    parts = [tag("text", f"{name} {arrow}", x=0, y=y + 13, class_="lane")]
    for (_, c), (severity, node) in _pooled({(0, c): cell for c, cell in lane.bands.items()}, pool).items():
        parts.append(_cell((_LABEL + c * width, y), (width, _BAND), severity, f"{node_name(node)}, {name}"))
    y += _BAND + 3
    for row, title in _shown_rows(lane):
        parts.append(tag("text", shorten_head(title, 22), x=_LABEL - 8, y=y + 8.6, text_anchor="end"))
        chosen = {place: cell for place, cell in lane.cells.items() if place[0] == row}
        for (_, c), (severity, node) in _pooled(chosen, pool).items():
            parts.append(_cell((_LABEL + c * width, y), (width, _ROW), severity, f"{node_name(node)}, {name}"))
        y += _ROW
    if name == "forward":
        parts += _axis(lane, pool, width, y + 11)
        y += 18
    return parts, y + 2


def _shown_rows(lane: _Lane) -> list[tuple[int, str]]:
    rows = [(place, title) for title, place in lane.rows.items()]
    if len(rows) <= _MOST_ROWS:
        return rows
    worst = dict.fromkeys(lane.rows.values(), _NOTHING)
    for (row, _), (severity, _) in lane.cells.items():
        worst[row] = min(worst[row], severity)
    kept = sorted(rows, key=lambda item: (worst[item[0]], item[0]))[:_MOST_ROWS]
    return sorted(kept)


def _pooled(cells: dict[tuple[int, int], tuple[int, str]], pool: int) -> dict[tuple[int, int], tuple[int, str]]:
    merged: dict[tuple[int, int], tuple[int, str]] = {}
    for (row, column), cell in sorted(cells.items()):
        place = (row, column // pool)
        if place not in merged or cell[0] < merged[place][0]:
            merged[place] = cell
    return merged


def _cell(at: tuple[float, float], size: tuple[float, float], severity: int, said: str) -> Markup:
    verdict = MARKS[min(severity, len(MARKS) - 1)].verdict
    x, y, width, height = round(at[0] + 0.5, 2), at[1] + 0.5, round(max(1.5, size[0] - 1), 2), size[1] - 1
    box = tag("rect", x=x, y=y, width=width, height=height, rx=1, class_=f"cell-{verdict}")
    cx, cy = round(x + width / 2, 2), y + height / 2
    mark = None
    if verdict == "introduced":
        mark = tag("path", d=f"M{cx:g} {cy - 3.4:g}l3.4 3.4-3.4 3.4-3.4-3.4z", class_="on-introduced")
    elif verdict == "suspect":
        mark = tag("path", d=f"M{cx:g} {cy - 3.2:g}l3.4 6h-6.8z", class_="on-suspect")
    return tag("g", tag("title", f"{verdict}: {said}"), box, mark, class_="cell", data_verdict=verdict, data_said=said)


def _axis(lane: _Lane, pool: int, width: float, y: float) -> list[Markup]:
    """Names columns: layers by number at a regular stride, others by their last segment; the guilty always."""
    parts: list[Markup] = []
    taken: list[tuple[float, float]] = []
    guilty = {c for c, (severity, _) in lane.bands.items() if severity == SEVERITY["introduced"]}
    layers = sum(_is_layer(name) for name in lane.columns)
    stride = next(s for s in _STRIDES if s * width / pool >= _LABEL_ROOM or s >= layers)
    for name, c in sorted(
        lane.columns.items(), key=lambda item: (item[1] not in guilty, not _is_layer(item[0]), item[1])
    ):
        text = name.rpartition(".")[2] or "(root)"
        if _is_layer(name) and int(text) % stride and c not in guilty:
            continue
        half = 3.2 * len(text) + 3
        x = min(_LABEL + (c // pool + 0.5) * width, _WIDTH - half)
        if all(x + half < low or x - half > high for low, high in taken):
            taken.append((x - half, x + half))
            style = "at" if c in guilty else None
            parts.append(tag("text", text, x=round(x, 2), y=y, text_anchor="middle", class_=style))
    return parts


def _is_layer(column: str) -> bool:
    return column.rpartition(".")[2].isdecimal()


def _patterns() -> Markup:
    hatch = tag(
        "pattern",
        tag("rect", width=5, height=5, class_="hatch-ground"),
        tag("path", d="M0 0v5", stroke_width=1.3, class_="hatch-line"),
        id="hatch", width=5, height=5, patternUnits="userSpaceOnUse", patternTransform="rotate(45)",
    )  # fmt: skip
    dots = tag(
        "pattern",
        tag("rect", width=4, height=4, class_="dots-ground"),
        tag("circle", cx=2, cy=2, r=0.9, class_="dots-dot"),
        id="dots", width=4, height=4, patternUnits="userSpaceOnUse",
    )  # fmt: skip
    return tag("defs", hatch, dots)
