"""Lay out a judged table as the columns of ``Comparison.pairs``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.comparison import PAIR_COLUMNS, SHOWN_STATISTICS
from msprobe.core.verdicts.table import DIRECTIONS, ROLES, row_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.verdicts.sources import Judged

_COUNTS = frozenset({"nan", "pos_inf", "neg_inf", "zero"})


def pair_columns(judged: Judged) -> dict[str, NDArray[Any]]:
    """Gives the columns of ``PAIR_COLUMNS``, sorted by rank, step, micro-step and order of execution."""
    table, facts = judged.table, judged.table.sites
    norm = table.norm
    roundoff = np.maximum(table.candidate.roundoff, table.reference.roundoff)
    with np.errstate(invalid="ignore", divide="ignore"):
        bound = np.where(norm > 0, judged.decisions.held_to / norm, np.nan)
        error_eps = np.where(roundoff > 0, judged.relative / roundoff, np.nan)
    columns: dict[str, NDArray[Any]] = {
        "rank": table.rank,
        "step": table.step,
        "micro_step": table.micro_step,
        "order": table.order,
        "reference_order": np.where(table.reference.present, table.reference.seq, -1),
        "direction": np.array(DIRECTIONS, dtype=object)[facts.direction[table.site].astype(int)],
        "role": np.array(ROLES, dtype=object)[facts.role[table.site].astype(int)],
        "argument": facts.argument[table.site],
        "verdict": judged.decisions.verdict,
        "reason": judged.decisions.reason,
        "error": judged.relative,
        "error_kind": judged.errors.kind,
        "error_eps": error_eps,
        "bound": np.where(table.matched, bound, np.nan),
        "bound_source": np.where(table.matched, judged.bounds.source, ""),
        "match_reason": facts.reason[table.site],
        "match_confidence": facts.confidence[table.site],
        "note": _notes(judged),
    }
    for name, side in (("candidate", table.candidate), ("reference", table.reference)):
        for fact in ("node", "class", "call"):
            columns[f"{name}_{fact}"] = getattr(facts, f"{name}_{fact}")[table.site]
        columns[f"{name}_dtype"], columns[f"{name}_shape"] = side.dtype, side.shape
        for statistic in SHOWN_STATISTICS:
            columns[f"{name}_{statistic}"] = _shown(side.statistics[statistic], counts=statistic in _COUNTS)
    order = row_order(table)
    return {name: columns[name][order] for name in PAIR_COLUMNS}


def _shown(column: NDArray[np.float64], *, counts: bool) -> NDArray[Any]:
    """Gives counts as integers, -1 where absent; other statistics as they are, NaN where absent."""
    return np.nan_to_num(column, nan=-1.0).astype(np.int64) if counts else column


def _notes(judged: Judged) -> NDArray[np.object_]:
    table = judged.table
    notes = np.full(len(table), "", dtype=object)
    matched = table.matched
    nan_c, nan_r = (np.nan_to_num(side.statistics["nan"]) for side in (table.candidate, table.reference))
    parts = [
        (matched & (table.candidate.dtype != table.reference.dtype), "other number format"),
        (matched & (nan_c > 0) & (nan_r > 0), "NaN on both sides"),
        (judged.flow.by_order & matched, "data flow supposed from order"),
        (matched & (judged.errors.kind == "statistics"), "statistics alone cannot see a permutation"),
    ]
    for rows, text in parts:
        notes[rows & (notes != "")] += "; "
        notes[rows] += text
    return notes
