"""What the panel of a node shows: every tensor of the pair, its statistics on both sides, its error and its bound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.comparison import SHOWN_STATISTICS
from msprobe.visualizers.rows import is_absent, one_sided, side_value
from msprobe.visualizers.web.graph_view import errors_of, label, number, shown_path, shown_reason
from msprobe.visualizers.web.origins import origins, stacks
from msprobe.visualizers.wording import printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.visualizers.web.selection import PairIndex, Selection

#: A node called very often has more rows than a table is good for; the worst are shown.
_MOST_ROWS = 400

#: Of how many rows it is told what they were made from.
_MOST_TOLD = 100

#: How many neighbours along the data flow are named.
_MOST_NEIGHBOURS = 12

#: How many steps the history holds.
_MOST_STEPS = 2000

_SIDES = ("candidate", "reference")


def panel(index: PairIndex, selection: Selection, candidate: int, reference: int) -> dict[str, Any]:
    """Gives the table of a pair of nodes; a side of -1 is not there."""
    own = _rows_of(index, candidate, reference)
    chosen = own[index.rows(selection)[own]]
    shown, left = chosen, 0
    if len(chosen) > _MOST_ROWS:
        worst = np.argsort(index.severity[chosen], kind="stable")[:_MOST_ROWS]
        shown, left = chosen[np.sort(worst)], len(chosen) - _MOST_ROWS
    reasons = sorted({(str(index.pairs["match_reason"][r]), float(index.pairs["match_confidence"][r])) for r in own})
    return {
        "c": _head(index, 0, candidate),
        "r": _head(index, 1, reference),
        "rows": [row_data(index, int(row)) for row in shown],
        "left_out": left,
        "elsewhere": len(own) - len(chosen),
        "matched_by": [{"reason": shown_reason(text), "confidence": number(sure)} for text, sure in reasons if text],
        "history": history(index, own),
        "flow": _flow(index, selection, (candidate, reference)),
        "stacks": stacks(index.records, _telling(index, chosen)[:_MOST_TOLD]),
        "origins": origins(index.records, shown[:_MOST_TOLD].tolist()),
    }


def _flow(index: PairIndex, selection: Selection, pair: tuple[int, int]) -> list[dict[str, Any]]:
    """Gives for each side the nodes that data comes from and goes to; of the first rank where all are looked at.

    It is the forward pass that is told of, unless the backward one alone is looked at.
    """
    rank = selection.rank if selection.rank is not None else next(iter(index.ranks), 0)
    marks = index.marks(selection)
    found = []
    for side, node in enumerate(pair):
        edges = index.flow(side, rank, backward=selection.direction == "backward")
        ways = {"before": edges[edges[:, 1] == node, 0], "after": edges[edges[:, 0] == node, 1]}
        told = {
            name: [
                {"id": n, "path": shown_path(index, side, n), "worst": marks[side].worst(n)}
                for n in nodes[:_MOST_NEIGHBOURS].tolist()
            ]
            for name, nodes in ways.items()
        }
        found.append({"side": "cr"[side], **told})
    return found


def _telling(index: PairIndex, rows: NDArray[np.int64]) -> list[int]:
    """Orders rows by what a stack tells: that of a forward call shows the code, of several the worst row's."""
    told: list[int] = rows[np.lexsort((index.severity[rows], index.backward[rows]))].tolist()
    return told


def _rows_of(index: PairIndex, candidate: int, reference: int) -> NDArray[np.int64]:
    masks = [index.nodes[side] == node for side, node in enumerate((candidate, reference)) if node > 0]
    if not masks:
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.logical_or.reduce(masks))


def _head(index: PairIndex, side: int, node: int) -> dict[str, Any] | None:
    if node <= 0:
        return None
    tree = index.trees[side]
    trail = [{"id": n, "name": label(tree.paths[n], tree.paths[int(tree.parents[n])])} for n in tree.ancestors(node)]
    return {
        "id": node,
        "path": shown_path(index, side, node),
        "name": label(tree.paths[node], tree.paths[int(tree.parents[node])]),
        "class": printable(tree.classes[node]),
        "trail": trail,
    }


def row_data(index: PairIndex, row: int) -> dict[str, Any]:
    """Gives one row of the pair table as plain data."""
    pairs = index.pairs
    calls = [int(pairs[f"{side}_call"][row]) for side in _SIDES]
    return {
        "row": row,
        "severity": int(index.severity[row]),
        "direction": str(pairs["direction"][row]),
        "role": str(pairs["role"][row]),
        "argument": printable(str(pairs["argument"][row])),
        "calls": calls,
        **{name: int(pairs[name][row]) for name in ("step", "rank", "micro_step")},
        "sides": [_side(index, row, side) for side in _SIDES],
        **errors_of(index, row),
        "error_kind": str(pairs["error_kind"][row]),
        "bound_source": str(pairs["bound_source"][row]),
        "reason": printable(str(pairs["reason"][row])),
        "note": printable(str(pairs["note"][row])),
        "one_sided": one_sided(pairs, row),
    }


def _side(index: PairIndex, row: int, side: str) -> dict[str, Any] | None:
    pairs = index.pairs
    if is_absent(pairs, row, side):
        return None
    values: dict[str, Any] = {
        "dtype": str(pairs[f"{side}_dtype"][row]),
        "shape": str(pairs[f"{side}_shape"][row]),
    }
    for name in SHOWN_STATISTICS:
        value = side_value(pairs, row, side, name)
        values[name] = None if value is None else number(value)
    return values


def history(index: PairIndex, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
    """Gives the worst row of each step, in order."""
    steps = index.pairs["step"][rows]
    found = []
    for step in np.unique(steps)[:_MOST_STEPS].tolist():
        here = rows[steps == step]
        excess = np.nan_to_num(index.excess[here], nan=-1.0)
        worst = int(here[np.lexsort((-excess, index.severity[here]))[0]])
        found.append({"step": step, "severity": int(index.severity[worst]), **errors_of(index, worst)})
    return found
