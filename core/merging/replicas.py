"""Replicas are checked, never taken on trust: which of them differ, and which one a merged record should show.

Ranks that hold the same part of a tensor must hold the same bits. Where they do not, the record of the whole shows the
one that is further from the other side of a comparison, so that the difference is judged as any other: it may be
rounding, or a fault in one rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.merging.records import CHUNK, Used, gather, used_members
from msprobe.core.records import HAS, STATISTICS
from msprobe.core.sketches import estimate_error

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.matching.rows import RowPairs
    from msprobe.core.merging.grouping import Members
    from msprobe.core.merging.plans import Plan
    from msprobe.core.merging.view import MergedRank
    from msprobe.core.run.reader import RankRun

_COMPARED = ("has", *STATISTICS, "sketch", "checksum", "content_sum")


@dataclass(frozen=True)
class Differing:
    """Replicas that differ: rows of ``Members`` of the replica and of what is kept, the whole's number, the axes."""

    whole: NDArray[np.int64]
    replica: NDArray[np.int64]
    kept: NDArray[np.int64]
    axes: NDArray[np.object_]
    #: How many replicas were compared.
    checked: int

    def __len__(self) -> int:
        return len(self.whole)


def find_differing(ranks: Sequence[RankRun], members: Members, plans: Sequence[Plan]) -> Differing:
    """Compares every replica with what is kept of it: by checksum where there is one, else by all that was measured."""
    pairs = replicas_of(members, plans)
    wrong = np.zeros(len(pairs.whole), dtype=bool)
    names = tuple(name for name in _COMPARED if any(name in rank.records for rank in ranks))
    for first in range(0, len(wrong), CHUNK):
        part = slice(first, first + CHUNK)
        a, b = (gather(ranks, members, rows[part], names) for rows in (pairs.replica, pairs.kept))
        wrong[part] = _unequal(a, b)
    return Differing(pairs.whole[wrong], pairs.replica[wrong], pairs.kept[wrong], pairs.axes[wrong], len(wrong))


def replicas_of(members: Members, plans: Sequence[Plan]) -> Differing:
    """Gives all replicas, each with what is kept of it."""
    order = np.argsort(members.plan, kind="stable")
    bounds = np.searchsorted(members.plan[order], np.arange(len(plans) + 1))
    parts: list[tuple[NDArray[Any], ...]] = []
    for number, plan in enumerate(plans):
        wholes = order[bounds[number] : bounds[number + 1]]
        for replica, kept, axes in plan.replicas:
            start = members.starts[wholes]
            parts.append((wholes, start + replica, start + kept, np.full(len(wholes), axes, dtype=object)))
    if not parts:
        empty = np.zeros(0, dtype=np.int64)
        return Differing(empty, empty, empty, np.zeros(0, dtype=object), 0)
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return Differing(columns[0], columns[1], columns[2], columns[3], len(columns[0]))


def _unequal(a: dict[str, NDArray[Any]], b: dict[str, NDArray[Any]]) -> NDArray[np.bool_]:
    held = a["has"] & b["has"]
    unequal = np.zeros(len(held), dtype=bool)
    for name in (*STATISTICS, "sketch"):
        if name in a:
            same = (a[name] == b[name]) | ((a[name] != a[name]) & (b[name] != b[name]))
            bit = HAS["sketch" if name == "sketch" else "statistics"]
            unequal |= (held & bit != 0) & ~(same.all(axis=1) if same.ndim > 1 else same)
    if "checksum" in a:
        by_bits = held & HAS["checksums"] != 0
        unequal = np.where(by_bits, a["checksum"] != b["checksum"], unequal)
    return unequal


def show_worst(merged: MergedRank, own: NDArray[np.int64], other: Any, others: NDArray[np.int64]) -> None:
    """Lets merged records show the replica that is furthest from the other side's record.

    Args:
        merged: The side whose replicas differ.
        own: Rows of ``merged.records`` that have a partner.
        other: The other side, with ``records``.
        others: The partner's row for each.
    """
    differing = merged.differing
    place = merged.places[differing.whole]
    partner = np.full(merged.num_records, -1, dtype=np.int64)
    partner[own] = others
    rows = np.flatnonzero(partner[place] >= 0)
    if not len(rows):
        return
    variants = _variants(merged, differing, rows)
    theirs = {name: column[partner[place[rows]]] for name, column in other.records.items()}
    kept = {name: column[place[rows]] for name, column in merged.records.items()}
    far, near = _distance(variants, theirs), _distance(kept, theirs)
    _choose(merged, differing, rows, far, near)


def _choose(
    merged: MergedRank,
    differing: Differing,
    rows: NDArray[np.int64],
    far: NDArray[np.float64],
    near: NDArray[np.float64],
) -> None:
    """Lets the furthest replica of each part stand for it, and notes the ranks that are about as far."""
    alike = _equal_replicas(merged, differing)
    variants: dict[int, list[tuple[float, int]]] = {}
    usual: dict[int, tuple[float, int]] = {}
    for row, distance, own in zip(rows.tolist(), far.tolist(), near.tolist(), strict=True):
        at = int(differing.kept[row])
        variants.setdefault(at, []).append((distance, int(differing.replica[row])))
        usual[at] = (own, int(differing.whole[row]))
    instead: dict[int, int] = {}
    odd: dict[int, set[int]] = {}
    for at, found in variants.items():
        own, whole = usual[at]
        worst, member = max(found)
        if worst > own:
            instead[at] = member
        same = [at, *alike.get(at, ())]
        wrong = [member for distance, member in found if 2 * distance >= max(worst, own)]
        wrong += same if 2 * own >= max(worst, own) else []
        if len(wrong) < len(found) + len(same):
            odd.setdefault(whole, set()).update(merged.numbers[int(merged.members.rank[m])] for m in wrong)
    merged.substitute(instead, {whole: tuple(sorted(ranks)) for whole, ranks in odd.items()})


def _equal_replicas(merged: MergedRank, differing: Differing) -> dict[int, list[int]]:
    """Gives, for each kept member of which some replicas differ, those that do not."""
    every = merged.replicas
    rows = np.flatnonzero(np.isin(every.kept, differing.kept) & ~np.isin(every.replica, differing.replica))
    found: dict[int, list[int]] = {}
    for kept, replica in zip(every.kept[rows].tolist(), every.replica[rows].tolist(), strict=True):
        found.setdefault(kept, []).append(replica)
    return found


def _variants(merged: MergedRank, differing: Differing, rows: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """Gives the records of wholes with one replica in the place of what is kept, for each of the rows."""
    members, plans = merged.members, merged.plans
    wholes = np.unique(differing.whole[rows])
    used = used_members(members, plans, wholes)
    starts = np.searchsorted(used.whole, differing.whole[rows])
    ends = np.searchsorted(used.whole, differing.whole[rows], side="right")
    lengths = ends - starts
    index = np.repeat(starts - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths) + np.arange(lengths.sum())
    number = np.repeat(np.arange(len(rows)), lengths)
    member = used.member[index].copy()
    stands_for = member == differing.kept[rows][number]
    member[stands_for] = differing.replica[rows][number[stands_for]]
    return merged.combiner.combine(Used(member, number, used.undone[index]), members.plan[differing.whole[rows]])


def _distance(a: dict[str, NDArray[Any]], b: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Estimates how far records are apart; of unequal bits without any measure it gives the smallest number."""
    held = a["has"] & b["has"]
    distance = np.zeros(len(held))
    if "checksum" in a and "checksum" in b:
        unequal = (held & HAS["checksums"] != 0) & (a["checksum"] != b["checksum"])
        distance[unequal] = np.finfo(np.float64).tiny
    with np.errstate(invalid="ignore", over="ignore"):
        if "norm" in a and "norm" in b:
            apart = np.fmax.reduce([np.abs(a[name] - b[name]) for name in ("min", "max", "norm")])
            distance = np.fmax(distance, np.where(held & HAS["statistics"] != 0, np.nan_to_num(apart), 0.0))
            for name in ("nan", "pos_inf", "neg_inf"):
                distance[(held & HAS["statistics"] != 0) & (a[name] != b[name])] = np.inf
        if "sketch" in a and "sketch" in b:
            apart = np.nan_to_num(estimate_error(a["sketch"], b["sketch"]))
            distance = np.fmax(distance, np.where(held & HAS["sketch"] != 0, apart, 0.0))
    return distance


def pairs_of(pairs: RowPairs) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Gives the rows of both sides that have a partner."""
    both = (pairs.candidate >= 0) & (pairs.reference >= 0)
    return pairs.candidate[both], pairs.reference[both]
