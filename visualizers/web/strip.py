"""All nodes in one look: a column for each layer, a row for each module in it, the worst verdict in each cell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.matching.names import split_operator
from msprobe.visualizers.marks import SEVERITY
from msprobe.visualizers.web.selection import NOTHING, Selection
from msprobe.visualizers.wording import printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.visualizers.web.selection import PairIndex
    from msprobe.visualizers.web.trees import NodeTree

#: The first numbered segment makes the layer: ``model.layers.3`` of ``model.layers.3.mlp.up_proj``.
_LAYER = re.compile(r"^(.*?(?:^|\.)\d+)(?:\.|$)(.*)$")

#: More rows than this do not fit; those with the mildest verdicts are left out.
_MOST_ROWS = 24


def strip_cells(index: PairIndex) -> dict[str, Any]:
    """Gives the strip of the step in which things first went wrong: columns, and for each direction rows and cells.

    A cell is (row, column, severity, node); row -1 is the band of the whole column. Nodes are the candidate's.
    """
    step = told_step(index)
    tree = index.trees[0]
    columns: dict[str, int] = {}
    lanes = []
    for direction in ("forward", "backward"):
        own = index.marks(Selection(step=step, direction=direction))[0].own
        lanes.append(_lane(tree, own, columns))
    return {
        "step": step,
        "columns": [printable(name) for name in columns],
        "lanes": [{"direction": name, **lane} for name, lane in zip(("forward", "backward"), lanes, strict=True)],
    }


def told_step(index: PairIndex) -> int | None:
    """Gives the step to show: where the worst verdict is first met; None for all when all agree."""
    worst = int(index.severity.min(initial=NOTHING))
    if worst > SEVERITY["inherited"]:
        return None
    return int(index.pairs["step"][index.severity == worst].min())


def _lane(tree: NodeTree, own: NDArray[np.int64], columns: dict[str, int]) -> dict[str, Any]:
    worst = np.where(own > 0, np.arange(NOTHING), NOTHING).min(axis=1, initial=NOTHING)
    rows: dict[str, int] = {}
    cells: dict[tuple[int, int], tuple[int, int]] = {}
    for node in np.flatnonzero(worst < NOTHING).tolist():
        if not node:
            continue
        severity = int(worst[node])
        module = split_operator(tree.paths[node])[0]
        container = tree.ends[node] > node + 1 and "/" not in tree.paths[node + 1]
        if container and severity > SEVERITY["introduced"]:
            continue  # what a container merely hands on is shown by what is in it
        column, row = _place(module)
        at = columns.setdefault(column, len(columns))
        for place in {-1, rows.setdefault(row, len(rows)) if row else -1}:
            if severity < cells.get((place, at), (NOTHING, 0))[0]:
                cells[place, at] = (severity, node)
    kept = _kept(rows, cells)
    return {
        "rows": [printable(name) for name, number in rows.items() if number in kept],
        "cells": [
            [kept.get(row, -1), column, severity, node]
            for (row, column), (severity, node) in cells.items()
            if row in kept or row < 0
        ],
    }


def _kept(rows: dict[str, int], cells: dict[tuple[int, int], tuple[int, int]]) -> dict[int, int]:
    """Gives the new number of each row that is shown."""
    worst = dict.fromkeys(rows.values(), NOTHING)
    for (row, _), (severity, _) in cells.items():
        if row >= 0:
            worst[row] = min(worst[row], severity)
    chosen = sorted(sorted(worst, key=lambda row: (worst[row], row))[:_MOST_ROWS])
    return {row: number for number, row in enumerate(chosen)}


def _place(module: str) -> tuple[str, str]:
    """Gives column and row of a module; what is in no layer has no row of its own, only the band."""
    found = _LAYER.match(module)
    return (found[1], found[2] or "(layer)") if found else (module or "(root)", "")
