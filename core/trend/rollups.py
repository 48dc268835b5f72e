"""Roll-ups: what many cells come to in one, made once so that a pooled view need not read them all.

Each keeps, for every statistic, the lowest and the highest finite value, and of the states the worst, with counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.robust import LEAST_VALUES, normal_of
from msprobe.core.trend.ordering import group_starts, order_by
from msprobe.core.trend.states import NON_FINITE, State

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Columns = Mapping[str, NDArray[Any]]

#: Statistics with a low and a high in each roll-up, and counts with a high only.
STATISTICS = ("min", "max", "mean", "mean_abs", "std", "norm")
COUNTS = ("nan", "pos_inf", "neg_inf", "zero", "elements")
#: What replicas are scored by.
SCORED = ("norm", "largest")


def roll_up(rows: Columns, *keys: str) -> dict[str, NDArray[Any]]:
    """Gives one row for each distinct combination of the key columns, sorted by them.

    ``cells`` counts rows, ``non_finite`` those with NaN or Inf, ``zeros`` those of zeros only, ``state`` is the worst.
    """
    order = order_by(*(rows[key] for key in keys))
    sorted_keys = {key: rows[key][order] for key in keys}
    starts = group_starts(*sorted_keys.values())
    result: dict[str, NDArray[Any]] = {key: column[starts] for key, column in sorted_keys.items()}
    if not len(order):
        starts = np.zeros(0, np.int64)
    state = rows["state"][order]
    result["cells"] = np.diff(starts, append=len(order))
    result["state"] = _reduced(np.maximum, state, starts)
    result["non_finite"] = _reduced(np.add, (state >= NON_FINITE).astype(np.int64), starts)
    result["zeros"] = _reduced(np.add, (state == State.ZERO).astype(np.int64), starts)
    for name in STATISTICS:
        values = rows[name][order]
        result[f"low_{name}"] = _reduced(np.fmin, values, starts)
        result[f"high_{name}"] = _reduced(np.fmax, values, starts)
    for name in COUNTS:
        result[f"high_{name}"] = _reduced(np.maximum, rows[name][order], starts)
    return result


def _reduced(function: np.ufunc, values: NDArray[Any], starts: NDArray[np.int64]) -> NDArray[Any]:
    return np.asarray(function.reduceat(values, starts)) if len(starts) else values[:0]


def replica_scores(rows: Columns) -> dict[str, NDArray[Any]]:
    """Scores each rank among its replicas, for each (site, step); gives the rank furthest from them.

    Columns ``peer_score`` (signed; NaN with fewer than ``LEAST_VALUES`` replicas), ``peer_rank`` (-1) and
    ``peer_statistic`` (a position in ``SCORED``), sorted by (site, step). Needs the column ``peer``.
    """
    order = order_by(*(rows[key] for key in ("site", "step", "peer", "micro_step", "rank")))
    site, step, peer, micro = (rows[key][order] for key in ("site", "step", "peer", "micro_step"))
    starts = group_starts(site, step, peer, micro)
    sizes = np.diff(starts, append=len(order))
    outer = group_starts(site, step)
    best = np.full(len(outer), np.nan)
    best_rank, best_statistic = np.full(len(outer), -1, np.int64), np.zeros(len(outer), np.uint8)
    outer_of = np.searchsorted(outer, starts, side="right") - 1
    for number, name in enumerate(SCORED):
        values = _largest(rows, order) if name == "largest" else rows[name][order]
        for size in np.unique(sizes[sizes >= LEAST_VALUES]).tolist():
            groups = np.flatnonzero(sizes == size)
            picked = starts[groups][:, None] + np.arange(size)
            found = _extremes(values[picked].T)
            ranks = rows["rank"][order][picked[np.arange(len(groups)), found[1]]]
            _keep_worse((best, best_rank, best_statistic), outer_of[groups], found[0], ranks, number)
    return {"peer_score": best, "peer_rank": best_rank, "peer_statistic": best_statistic}


def _largest(rows: Columns, order: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.fmax(np.abs(rows["min"][order]), np.abs(rows["max"][order]))


def _extremes(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Gives the most extreme score of each column and the row it stands in; values have shape (replicas, groups).

    Only the lowest and the highest can be the most extreme, so only they are scored.
    """
    normal = normal_of(values, magnitudes=True)
    magnitudes = np.abs(values)
    low = np.argmin(np.where(np.isfinite(values), magnitudes, np.inf), axis=0)
    high = np.argmax(np.where(np.isfinite(values), magnitudes, -np.inf), axis=0)
    columns = np.arange(values.shape[1])
    ends = [normal.score(values[end, columns]) for end in (low, high)]
    upper = np.abs(np.nan_to_num(ends[1])) >= np.abs(np.nan_to_num(ends[0], neginf=-1e308))
    return np.where(upper, ends[1], ends[0]), np.where(upper, high, low)


def _keep_worse(
    best: tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.uint8]],
    where: NDArray[np.int64],
    found: NDArray[np.float64],
    ranks: NDArray[Any],
    statistic: int,
) -> None:
    """Keeps the more extreme score of each (site, step); ``where`` may name one more than once."""
    order = np.argsort(np.abs(np.nan_to_num(found, neginf=-1e308)), kind="stable")  # the last assignment wins
    score, rank, number = best
    at, values = where[order], found[order]
    worse = ~np.isnan(values) & ~(np.abs(values) <= np.abs(score[at]))
    at = at[worse]
    score[at], rank[at], number[at] = values[worse], ranks[order][worse], statistic
