"""Pack the worst rows for the script of the page: columns, texts named once, every number as the text to show.

Strict JSON. A number is a number; NaN and the infinities are texts; what was not recorded is null.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.comparison import SHOWN_STATISTICS
from msprobe.core.dtypes import unit_roundoff
from msprobe.visualizers.marks import MARKS
from msprobe.visualizers.rows import SIDES, absent, known, nodes, one_sided, worst_first
from msprobe.visualizers.wording import node_name, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from msprobe.core.comparison import Comparison

#: How many rows the page holds; more would make a browser slow. CSV and Parquet hold all.
MOST_ROWS = 20_000

#: Digits that a reader compares; the files keep the full precision.
_DIGITS = 6


def payload(comparison: Comparison) -> str:
    """Gives the rows as JSON that is safe inside a script element."""
    chosen = worst_first(comparison.pairs)[:MOST_ROWS]
    pairs = {name: column[chosen] for name, column in comparison.pairs.items()}
    units = _units(pairs)
    measured, bounded = known(pairs, "error"), known(pairs, "bound")
    columns: dict[str, object] = {
        name: _texts(pairs[name])
        for name in ("verdict", "direction", "role", "reason", "note", "bound_source", "error_kind", "match_reason")
    }
    columns["node"] = _texts(nodes(pairs), node_name)
    columns["argument"] = _texts(pairs["argument"])
    for name in ("step", "micro_step", "rank", "order"):
        columns[name] = pairs[name].tolist()
    columns["error"] = _numbers(pairs["error"], measured)
    columns["bound"] = _numbers(pairs["bound"], bounded)
    with np.errstate(divide="ignore", invalid="ignore"):
        columns["error_eps"] = _numbers(pairs["error"] / units, measured & (units > 0))
        columns["bound_eps"] = _numbers(pairs["bound"] / units, bounded & (units > 0))
    odd = np.full(len(chosen), "", dtype=object)
    for row in np.flatnonzero(np.isinf(pairs["error"])):
        odd[row] = one_sided(pairs, int(row))
    columns["one_sided"] = _texts(odd)
    for side in SIDES:
        columns.update(_side(pairs, side, ~absent(pairs, side)))
    for name in comparison.comparators:
        columns[name] = _numbers(pairs[name].astype(np.float64), ~np.isnan(pairs[name].astype(np.float64)))
    document = {
        "total": len(comparison),
        "rows": len(chosen),
        "verdicts": [mark.verdict for mark in MARKS],
        "statistics": SHOWN_STATISTICS,
        "comparators": comparison.comparators,
        "columns": columns,
    }
    return embeddable(document)


def embeddable(document: object) -> str:
    """Writes JSON in which no text can end the script element around it."""
    text = json.dumps(document, allow_nan=False, ensure_ascii=True, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _side(pairs: Mapping[str, NDArray[Any]], side: str, present: NDArray[np.bool_]) -> dict[str, object]:
    columns: dict[str, object] = {
        f"{side}_{name}": _texts(np.where(present, pairs[f"{side}_{name}"], ""))
        for name in ("node", "class", "dtype", "shape")
    }
    columns[f"{side}_call"] = np.where(present, pairs[f"{side}_call"], -1).tolist()
    for name in SHOWN_STATISTICS:
        column = f"{side}_{name}"
        columns[column] = _numbers(pairs[column].astype(np.float64), known(pairs, column))
    return columns


def _units(pairs: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    units = np.zeros(len(pairs["verdict"]))
    for side in SIDES:
        column = pairs[f"{side}_dtype"]
        for name in set(column.tolist()):
            units = np.where(column == name, np.maximum(units, unit_roundoff(str(name))), units)
    return units


def _texts(column: NDArray[Any], write: Callable[[str], str] = printable) -> dict[str, object]:
    """Names each distinct text once; a column that says the same everywhere is its one text."""
    numbers: dict[str, int] = {}
    codes = [numbers.setdefault(str(value), len(numbers)) for value in column.tolist()]
    return {"texts": [write(text) for text in numbers], "codes": codes if len(numbers) > 1 else 0}


def _numbers(column: NDArray[Any], present: NDArray[np.bool_]) -> list[float | str | None]:
    return [_number(value) if here else None for value, here in zip(column.tolist(), present.tolist(), strict=True)]


def _number(value: float) -> float | str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    rounded = float(f"{value:.{_DIGITS}g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 and math.copysign(1, rounded) > 0 else rounded
