"""What the graph page asks for: rows of opened containers, the way to a node, hits of a search, the strip of all nodes.

Everything is plain data for JSON. Nodes are named by side ("c" or "r") and number; numbers hold for one comparison.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.visualizers.rows import roundoff
from msprobe.visualizers.web.alignment import AlignedRow, align
from msprobe.visualizers.web.selection import NOTHING, Marks, PairIndex, Selection
from msprobe.visualizers.wording import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Longer names are cut for display at the head; the full name is on the node's panel.
_LONGEST_NAME = 400

#: The mapping file that what was matched by hand is judged with.
BY_HAND = "by-hand.yaml"

_BY_FILE = re.compile(r"mapping, (?P<path>.*):(?P<line>\d+)(?P<more>.*)", re.DOTALL)

#: How many hits of a search are given.
_MOST_HITS = 60


def node_data(index: PairIndex, side: int, node: int, marks: Marks) -> dict[str, Any]:
    """Gives what a box shows: name, class, the worst verdict with counts below it, and its own error."""
    tree = index.trees[side]
    data: dict[str, Any] = {
        "id": node,
        "name": label(tree.paths[node], tree.paths[int(tree.parents[node])]),
        "class": printable(tree.classes[node])[:_LONGEST_NAME],
        "kind": tree.kinds[node].value,
        "leaf": int(tree.ends[node]) == node + 1,
        "worst": marks.worst(node),
        "own": marks.worst(node, below=False),
        "counts": marks.rolled[node].tolist(),
        "partners": index.partners[side].get(node, []),
    }
    row = int(marks.worst_row[node])
    if row >= 0:
        data["error"] = errors_of(index, row)
        data["by"] = shown_reason(str(index.pairs["match_reason"][row]))
    return data


def shown_reason(reason: str) -> str:
    """Gives why two nodes are a pair, with a mapping file by its name; the file of what was clicked has none.

    >>> shown_reason("mapping, runs/layers.yaml:9: concat")
    'mapping, layers.yaml:9: concat'
    """
    found = _BY_FILE.fullmatch(reason)
    if found is None:
        return printable(reason)
    name = found["path"].rpartition("/")[2]
    return "by hand" if name == BY_HAND else printable(f"mapping, {name}:{found['line']}{found['more']}")


def errors_of(index: PairIndex, row: int) -> dict[str, Any]:
    """Gives error and bound of a row in units of epsilon; None where unknown, text where not finite."""
    unit = roundoff(index.pairs, row)
    error, bound = float(index.pairs["error"][row]), float(index.pairs["bound"][row])
    known = str(index.pairs["error_kind"][row]) != ""
    return {
        "eps": number(error / unit) if known and unit else None,
        "bound": number(bound / unit) if unit and not math.isnan(bound) else None,
        "error": number(error) if known else None,
        "row": row,
    }


def number(value: float) -> float | str:
    """Gives a number as JSON can hold it."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return float(f"{value:.6g}")


def strict(value: Any) -> Any:
    """Gives a document as JSON can hold it and a page may show it: odd numbers by name, no character that acts."""
    if isinstance(value, float):
        return value if math.isfinite(value) else number(value)
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {key: strict(item) for key, item in value.items()}
    return [strict(item) for item in value] if isinstance(value, list | tuple) else value


def open_container(index: PairIndex, selection: Selection, candidate: int, reference: int) -> list[dict[str, Any]]:
    """Gives the rows inside a pair of containers; a side of -1 is not there."""
    marks = index.marks(selection)
    sides = [
        [child for child in tree.children(node) if marks[side].kept[child]] if node >= 0 else []
        for side, (tree, node) in enumerate(zip(index.trees, (candidate, reference), strict=True))
    ]
    return [_row(index, row, marks) for row in align(sides[0], sides[1], index.partners[0])]


def _row(index: PairIndex, row: AlignedRow, marks: tuple[Marks, Marks]) -> dict[str, Any]:
    return {
        "c": [node_data(index, 0, node, marks[0]) for node in row.candidates],
        "r": [node_data(index, 1, node, marks[1]) for node in row.references],
    }


def way_to(index: PairIndex, side: int, node: int) -> list[list[int]]:
    """Gives the pairs of containers to open, the outermost first, so that a node becomes visible."""
    way = []
    for container in [0, *index.trees[side].ancestors(node)]:
        partners = index.partners[side].get(container, [])
        partner = partners[0] if partners else -1
        way.append([container, partner] if side == 0 else [partner, container])
    return way


def search(index: PairIndex, selection: Selection, text: str) -> dict[str, Any]:
    """Finds nodes of both sides whose path, or class, holds the letters of a text in order; the closest first."""
    wanted = text.strip().lower()
    if not wanted:
        return {"hits": [], "total": 0}
    marks = index.marks(selection)
    first, second = index.haystacks
    scores = [first.scores(wanted)]
    scores.append(scores[0].copy() if second is first else second.scores(wanted))
    # A pair is one hit, by the candidate's name: the reference's nodes count where only they fit.
    told = index.pair_numbers[np.isfinite(scores[0])[index.pair_numbers[:, 0]], 1]
    scores[1][told] = np.inf
    both = np.concatenate(scores)
    fitting = np.flatnonzero(np.isfinite(both))
    best = fitting[np.argsort(both[fitting], kind="stable")[:_MOST_HITS]].tolist()
    size = len(scores[0])
    hits = [
        {"side": "cr"[side], **node_data(index, side, node, marks[side]), "path": shown_path(index, side, node)}
        for side, node in (divmod(place, size) if place < size else (1, place - size) for place in best)
    ]
    return {"hits": hits, "total": len(fitting)}


def shown_path(index: PairIndex, side: int, node: int) -> str:
    """Gives the path of a node as it may be shown."""
    path = index.trees[side].paths[node]
    return printable(path) or ("(root)" if node else "")


def label(path: str, parent: str) -> str:
    """Gives the name of a node inside its container."""
    text = path[len(parent) + 1 :] if parent and path.startswith((f"{parent}.", f"{parent}/")) else path
    text = printable(text.lstrip("/")) or "(root)"
    return text if len(text) <= _LONGEST_NAME else "..." + text[-_LONGEST_NAME:]


def minimap(index: PairIndex, selection: Selection, pixels: int) -> list[list[int]]:
    """Gives the worst severity along each side's nodes in order of execution, pooled to so many pixels."""
    bands = []
    for side, marks in enumerate(index.marks(selection)):
        leaves = np.flatnonzero(index.trees[side].ends == np.arange(len(index.trees[side])) + 1)
        worst = np.where(marks.own[leaves] > 0, np.arange(NOTHING), NOTHING).min(axis=1, initial=NOTHING)
        size = min(pixels, max(1, len(leaves)))
        pooled = np.full(size, NOTHING)
        np.minimum.at(pooled, np.arange(len(leaves)) * size // max(1, len(leaves)), worst)
        bands.append(pooled.tolist())
    return bands


def unmatched(index: PairIndex, side: int, limit: int) -> Sequence[int]:
    """Gives the nodes of one side that have no partner though they were recorded, in order."""
    alone = np.zeros(len(index.trees[side]), dtype=bool)
    alone[index.nodes[side][index.nodes[side] > 0]] = True
    alone[index.pair_numbers[:, side]] = False
    found: list[int] = np.flatnonzero(alone)[:limit].tolist()
    return found
