"""What the reduction over ranks made of the ranks' gradients: their sum, their mean, or something else.

Sketches are linear, so the sketch of the reduced gradient must be that of the sum of all terms, over ranks and
micro-steps, times 1 or 1 / ranks. Where no operation was recorded this tells which it was; else it is checked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.comparison import Finding
from msprobe.core.grouping import group_numbers
from msprobe.core.merging.plans import ALONE, MEAN
from msprobe.core.records import HAS, Status
from msprobe.core.sites import Direction, Role

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from msprobe.core.merging.identity import SiteKey
    from msprobe.core.merging.plans import Plan
    from msprobe.core.merging.view import MergedRank

_GRADIENT = tuple(Role).index(Role.GRADIENT)
_AFTER = [tuple(Direction).index(direction) for direction in (Direction.REDUCE, Direction.UPDATE)]
_BEFORE = tuple(Direction).index(Direction.BACKWARD)

#: A reduced gradient and the sum of its terms agree to this many roundings of its format, or to this in any format.
_ROUNDINGS, _LEAST = 16.0, 1e-5
#: A factor is a clean number where it is that near.
_CLEAN = 1e-3

NOT_REDUCED = "what the reduction over ranks makes of it was not recorded"


@dataclass(frozen=True)
class Reductions:
    """One entry for each parameter and step: rows of its terms, the row of what they became, and the factor.

    ``factor`` is that of the reduced gradient against the sum of all terms; NaN where it is no multiple of it.
    ``group`` numbers the entry of each row of ``rows``.
    """

    rows: NDArray[np.int64]
    group: NDArray[np.int64]
    reduced: NDArray[np.int64]
    factor: NDArray[np.float64]
    ranks: NDArray[np.int64]


_NONE = np.zeros(0, dtype=np.int64)
NO_REDUCTIONS = Reductions(_NONE, _NONE, _NONE, np.zeros(0), _NONE)


def find_reductions(
    records: Mapping[str, NDArray[Any]],
    plan: NDArray[np.int64],
    plans: Sequence[Plan],
    sites: Sequence[SiteKey],
    roundoff: NDArray[np.float64],
) -> Reductions:
    """Compares the terms of gradients with what they were reduced to.

    Args:
        records: Records of wholes, partial gradients as sums (or means) of their terms.
        plan: The number of each record's plan.
        plans: The plans.
        sites: The sites of the whole model.
        roundoff: Unit roundoff of each record's format.
    """
    terms = np.array([p.terms if p.how != ALONE and not p.reason else 1 for p in plans], dtype=np.int64)
    local = np.array([key[1] == _BEFORE and key[2] == _GRADIENT for key in sites], dtype=bool)
    site = records["site"].astype(np.int64)
    rows = np.flatnonzero(local[site] & (terms[plan] > 1) & (records["has"] & HAS["sketch"] != 0))
    partner = _partners(sites)
    rows = rows[partner[site[rows]] >= 0] if len(rows) else rows
    group = group_numbers(site[rows], records["step"][rows])
    count = int(group.max(initial=-1)) + 1
    first = np.zeros(count, dtype=np.int64)
    first[group[::-1]] = rows[::-1]
    summed = np.array([terms[i] if p.how == MEAN else 1.0 for i, p in enumerate(plans)], dtype=np.float64)
    total = np.zeros((count, records["sketch"].shape[1] if count else 1))
    if count:
        np.add.at(total, group, records["sketch"][rows] * summed[plan[rows]][:, None])
    reduced = _rows_at(records, partner[site[first]], records["step"][first])
    factor = np.full(count, np.nan)
    there = reduced >= 0
    if there.any():
        factor[there] = _factors(total[there], records["sketch"][reduced[there]], roundoff[reduced[there]])
    return Reductions(rows, group, reduced, factor, terms[plan[first]])


def settle_terms(
    records: dict[str, NDArray[Any]], found: Reductions, plan: NDArray[np.int64], plans: Sequence[Plan]
) -> dict[int, float]:
    """Turns sums whose operation was not recorded into what the reduction made of them; the others are not known.

    Gives the factor of each row that was settled.
    """
    unreduced = np.array([bool(p.unreduced) and p.how != ALONE and not p.reason for p in plans], dtype=bool)
    waiting = np.flatnonzero(unreduced[plan]) if len(plan) else plan
    if not len(waiting):
        return {}
    known = np.full(len(plan), np.nan)
    known[found.rows] = _nearest(found.factor, found.ranks)[found.group]
    factor = known[waiting]
    settled = ~np.isnan(factor)
    records["sketch"][waiting[settled]] *= factor[settled][:, None]
    lost = waiting[~settled]
    records["has"][lost] = 0
    records["status"][lost] = Status.UNSUPPORTED
    for name in ("tensor", "rows"):
        if name in records:
            records[name][lost] = -1
    if "sketch" in records:
        records["sketch"][lost] = np.nan
    return {int(row): float(value) for row, value in zip(waiting, factor, strict=True)}


def check_reductions(name: str, merged: MergedRank) -> list[Finding]:
    """Says where the reduced gradient is not what its terms and the recorded operation make."""
    records, plan = merged.records, merged.plan_of_rows
    found = merged.reductions
    if not len(found.rows):
        return []
    first = found.rows[np.unique(found.group, return_index=True)[1]]
    means = np.array([p.how == MEAN for p in merged.plans], dtype=bool)[plan[first]]
    declared = np.array([not p.unreduced for p in merged.plans], dtype=bool)[plan[first]]
    times = found.factor * np.where(means, found.ranks, 1.0)
    direction = np.array([key[1] for key in merged.catalogue.sites], dtype=np.int64)
    after = direction[records["site"][found.reduced.clip(0)]] == _AFTER[0]
    wrong = np.flatnonzero((found.reduced >= 0) & declared & after & ~(np.abs(times - 1.0) <= _CLEAN))
    if not len(wrong):
        return []
    shown = int(wrong[0])
    path, _, _, argument, _ = merged.catalogue.sites[int(records["site"][first[shown]])]
    same = np.isnan(times[wrong]).all() or bool((np.abs(times[wrong] / times[shown] - 1.0) <= _CLEAN).all())
    told = _words(float(times[shown]), merged) if same else "no one multiple of"
    operation = "mean" if means[shown] else "sum"
    text = (
        f"In the {name} the reduced gradient is {told} the {operation} of its ranks' gradients, "
        f"in {len(wrong):,} cases, first {path}.{argument}, step {int(records['step'][first[shown]])}."
    )
    return [Finding("reduction", text)]


def _words(times: float, merged: MergedRank) -> str:
    if np.isnan(times):
        return "no multiple of"
    for mesh in merged.meshes.values():
        axes = [axis for axis, (_, size) in mesh.items() if abs(max(times, 1 / times) / size - 1.0) <= _CLEAN]
        if axes:
            size = mesh[axes[0]][1]
            shown = f"{size}" if times > 1 else f"1/{size}"
            return f"exactly {shown} times (the number of ranks along axis {' and '.join(axes)})"
    return f"{times:.4g} times"


def _partners(sites: Sequence[SiteKey]) -> NDArray[np.int64]:
    """Gives, for the site of each local gradient, that of the gradient after the reduction, else of the update; -1."""
    later: dict[tuple[str, str], tuple[int, int]] = {}
    for number, (path, direction, role, argument, _) in enumerate(sites):
        if role == _GRADIENT and direction in _AFTER:
            later[(path, argument)] = min(later.get((path, argument), (9, 0)), (_AFTER.index(direction), number))
    return np.array([later.get((key[0], key[3]), (0, -1))[1] for key in sites], dtype=np.int64)


def _rows_at(
    records: Mapping[str, NDArray[Any]], site: NDArray[np.int64], step: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Gives the one row with a sketch of each site and step; -1 where there is none, or several that may overlap."""
    held = np.flatnonzero(records["has"] & HAS["sketch"] != 0)
    places: dict[tuple[int, int], int] = {}
    for row, *place in zip(held.tolist(), records["site"][held].tolist(), records["step"][held].tolist(), strict=True):
        key = (place[0], place[1])
        places[key] = -1 if key in places else row
    return np.array([places.get(place, -1) for place in zip(site.tolist(), step.tolist(), strict=True)], dtype=np.int64)


def _factors(
    total: NDArray[np.float64], reduced: NDArray[np.float64], roundoff: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Gives the factor by which each sum is the reduced one; NaN where no factor is."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        factor: NDArray[np.float64] = np.einsum("ij,ij->i", total, reduced) / np.einsum("ij,ij->i", total, total)
        apart = np.linalg.norm(reduced - factor[:, None] * total, axis=1)
        factor[~(apart <= np.maximum(_LEAST, _ROUNDINGS * roundoff) * np.linalg.norm(reduced, axis=1))] = np.nan
    return factor


def _nearest(factor: NDArray[np.float64], ranks: NDArray[np.int64]) -> NDArray[np.float64]:
    """Rounds factors to powers of the number of ranks, between its inverse square and square; else NaN."""
    out = np.full(len(factor), np.nan)
    for power in (0, -1, 1, -2, 2):
        clean = ranks.astype(np.float64) ** power
        near = np.isnan(out) & (np.abs(factor - clean) <= _CLEAN * clean)
        out[near] = clean[near]
    return out
