"""Choose and order the rows of a comparison by how much they ask to be looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.comparison import SHOWN_STATISTICS
from msprobe.core.dtypes import unit_roundoff
from msprobe.visualizers.marks import MARKS
from msprobe.visualizers.wording import node_name, printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from msprobe.core.comparison import Comparison

SIDES = ("candidate", "reference")

#: How many rows of each verdict a short table shows at least, where there are so many; the first verdicts get the rest.
_SAMPLE = {"inherited": 3, "inconclusive": 2, "unmatched": 3}


def severities(pairs: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Gives the place of each row's verdict in the order of severity, 0 the worst."""
    severity = np.full(len(pairs["verdict"]), len(MARKS) - 1, dtype=np.int64)
    for place, mark in enumerate(MARKS):
        severity[pairs["verdict"] == mark.verdict] = place
    return severity


def excesses(pairs: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Gives each row's error divided by its bound; infinite where the error is, or where the bound is zero."""
    error, bound = pairs["error"].astype(np.float64), pairs["bound"].astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(error == 0, 0.0, error / bound)


def worst_first(pairs: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Gives the indices of all rows: by severity, in it by excess over the bound, in it by order of execution."""
    excess = excesses(pairs)
    # Not a number sorts behind every excess that is known.
    falling = np.where(np.isnan(excess), np.inf, -excess)
    keys = ("micro_step", "rank", "order", "step")
    return np.lexsort([*(pairs[key] for key in keys[:3]), falling, severities(pairs)]).astype(np.int64)


def telling_rows(comparison: Comparison, limit: int) -> NDArray[np.int64]:
    """Gives the indices of the rows that tell the story in ``limit`` lines.

    Sources first, then the other introduced and suspect rows, the worst first; of the verdicts that need no look, or
    that only a person can mend, a few, in order of execution. Rows that agree tell nothing.
    """
    pairs = comparison.pairs
    counts = comparison.summary.counts
    reserved = {verdict: min(_SAMPLE[verdict], counts.get(verdict, 0)) for verdict in _SAMPLE}
    while limit and sum(reserved.values()) > limit // 2:
        reserved[max(reserved, key=lambda verdict: reserved[verdict])] -= 1
    chosen = [source.row for source in comparison.summary.sources if 0 <= source.row < len(comparison)]
    order = worst_first(pairs)
    verdicts = pairs["verdict"][order]
    seen = set(chosen)
    chosen += [int(row) for row in order[np.isin(verdicts, ("introduced", "suspect"))] if int(row) not in seen]
    chosen = chosen[: max(0, limit - sum(reserved.values()))]
    for verdict, room in reserved.items():
        chosen += [int(row) for row in comparison.rows(verdict)[:room]]
    return np.array(chosen[:limit], dtype=np.int64)


def absent(pairs: Mapping[str, NDArray[Any]], side: str) -> NDArray[np.bool_]:
    """Tells for each row whether one side has no record at all (its site may have records at other steps)."""
    return np.asarray((pairs[f"{side}_call"] < 0) | (pairs[f"{side}_dtype"] == ""), dtype=np.bool_)


def is_absent(pairs: Mapping[str, NDArray[Any]], row: int, side: str) -> bool:
    """Tells whether one side of a row has no record at all."""
    return int(pairs[f"{side}_call"][row]) < 0 or pairs[f"{side}_dtype"][row] == ""


def known(pairs: Mapping[str, NDArray[Any]], name: str) -> NDArray[np.bool_]:
    """Tells for each row whether a column of numbers holds something recorded or known; it may still be NaN."""
    side, _, statistic = name.partition("_")
    if side in SIDES and statistic in SHOWN_STATISTICS:
        return np.asarray(pairs[f"{side}_nan"] >= 0, dtype=np.bool_)
    if name in ("error", "error_eps"):
        return np.asarray(pairs["error_kind"] != "", dtype=np.bool_)
    if name == "bound":
        return np.asarray(~np.isnan(pairs["bound"]), dtype=np.bool_)
    return np.ones(len(pairs["verdict"]), dtype=np.bool_)


def nodes(pairs: Mapping[str, NDArray[Any]]) -> NDArray[np.object_]:
    """Gives the node of each row by the candidate's name, by the reference's where the candidate lacks the site."""
    return np.where(pairs["candidate_call"] < 0, pairs["reference_node"], pairs["candidate_node"])


def encode(column: NDArray[np.object_]) -> tuple[list[str], NDArray[np.int64]]:
    """Gives the distinct texts of a column in order of appearance, and each row's place among them."""
    numbers: dict[str, int] = {}
    codes = [numbers.setdefault(text, len(numbers)) for text in column.tolist()]
    return list(numbers), np.array(codes, dtype=np.int64)


def row_node(pairs: Mapping[str, NDArray[Any]], row: int) -> str:
    """Gives the node of a row by the candidate's name, or by the reference's where the candidate has none."""
    side = "reference" if int(pairs["candidate_call"][row]) < 0 else "candidate"
    return node_name(str(pairs[f"{side}_node"][row]))


def row_place(pairs: Mapping[str, NDArray[Any]], row: int) -> str:
    """Gives the place of a row inside its node: direction, role, argument, and the call when it is not the first."""
    call = max(int(pairs["candidate_call"][row]), int(pairs["reference_call"][row]))
    place = f"{pairs['direction'][row]} {pairs['role'][row]} {printable(str(pairs['argument'][row]))}".rstrip()
    return f"{place} call {call}" if call > 0 else place


def row_format(pairs: Mapping[str, NDArray[Any]], row: int) -> str:
    """Gives number format and shape, of both sides where they differ."""
    sides = [
        f"{pairs[f'{side}_dtype'][row]}[{pairs[f'{side}_shape'][row]}]"
        for side in SIDES
        if not is_absent(pairs, row, side)
    ]
    return printable(" | ".join(dict.fromkeys(sides)))


def one_sided(pairs: Mapping[str, NDArray[Any]], row: int) -> str:
    """Says how many elements are not finite in candidate and reference, where the counts differ; else nothing."""
    for name, statistic in (("NaN", "nan"), ("+Inf", "pos_inf"), ("-Inf", "neg_inf")):
        counts = [int(pairs[f"{side}_{statistic}"][row]) for side in SIDES]
        if min(counts) >= 0 and counts[0] != counts[1]:
            return f"{name} {counts[0]}|{counts[1]}"
    return ""


def roundoff(pairs: Mapping[str, NDArray[Any]], row: int) -> float:
    """Gives epsilon of a row: the unit roundoff of the coarser of its two formats; 0 for exact formats."""
    return max(unit_roundoff(str(pairs[f"{side}_dtype"][row])) for side in SIDES)


def in_epsilon(value: float, unit: float) -> float:
    """Gives a relative error in units of epsilon; NaN for exact formats."""
    return value / unit if unit else float("nan")


def side_value(pairs: Mapping[str, NDArray[Any]], row: int, side: str, statistic: str) -> float | None:
    """Gives a statistic of one side; None where none was recorded, NaN where no element is finite."""
    return float(pairs[f"{side}_{statistic}"][row]) if int(pairs[f"{side}_nan"][row]) >= 0 else None
