"""Pair the records of two runs: same rank, step, micro-step and site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.grouping import group_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.matching.sites import SitePairs
    from msprobe.core.matching.views import RankView


@dataclass(frozen=True, slots=True)
class RowPairs:
    """Pairs of record rows of one rank: -1 where a side has none. ``site`` is the common site number."""

    candidate: NDArray[np.int64]
    reference: NDArray[np.int64]
    site: NDArray[np.int64]
    step: NDArray[np.int64]
    micro_step: NDArray[np.int64]


def match_rows(candidate: RankView, reference: RankView, sites: SitePairs, steps: NDArray[np.int64]) -> RowPairs:
    """Pairs the records of the given steps; a site seen more often than once in a micro-step pairs in order."""
    rows_c, keys_c = _keys(candidate, sites.candidate, steps)
    rows_r, keys_r = _keys(reference, sites.reference, steps)
    split = len(rows_c)
    keys = np.concatenate([keys_c, keys_r])
    if not len(keys):
        empty = np.zeros(0, dtype=np.int64)
        return RowPairs(empty, empty, empty, empty, empty)
    numbers = group_numbers(*keys.T)
    count = int(numbers.max()) + 1
    pair_c, pair_r = np.full(count, -1, dtype=np.int64), np.full(count, -1, dtype=np.int64)
    pair_c[numbers[:split]] = rows_c
    pair_r[numbers[split:]] = rows_r
    representative = np.empty(count, dtype=np.int64)
    representative[numbers] = np.arange(len(keys))
    step, micro_step, site = keys[representative].T[:3]
    return RowPairs(pair_c, pair_r, site.copy(), step.copy(), micro_step.copy())


def _keys(
    side: RankView, numbers: NDArray[np.int64], steps: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Gives the rows to pair and their keys (step, micro-step, site number, how often seen before)."""
    records = side.records
    site = numbers[records["site"]] if len(records["site"]) else np.zeros(0, dtype=np.int64)
    rows = np.flatnonzero((site >= 0) & np.isin(records["step"], steps))
    columns = [records["step"][rows].astype(np.int64), records["micro_step"][rows].astype(np.int64), site[rows]]
    return rows, np.stack([*columns, occurrences(group_numbers(*columns))], axis=1)


def occurrences(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts, for each row, the earlier rows of its group."""
    order = np.argsort(groups, kind="stable")
    changed = np.diff(groups[order], prepend=-1) != 0
    starts = np.maximum.accumulate(np.where(changed, np.arange(len(order)), 0))
    counts = np.empty(len(order), dtype=np.int64)
    counts[order] = np.arange(len(order)) - starts
    return counts
