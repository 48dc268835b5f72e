"""Bounds that were measured: by a noise run, or by a golden run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.verdicts.decide import decide
from msprobe.core.verdicts.errors import Errors, relative
from msprobe.core.verdicts.table import PairTable, Side

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.verdicts.bounds import Bounds
    from msprobe.core.verdicts.sources import Judged

Measured = tuple[PairTable, Errors]


def hold_to_noise(judged: Judged, noise: Measured) -> Judged:
    """Replaces what inputs' errors might explain by what a repetition of the reference showed at the same place.

    A row is then normal up to the larger of ``noise_factor`` times that floor and one fresh computation (the local
    part).
    """
    table, errors = noise
    floor = _spread(judged.table, judged.table.reference, table, table.reference, errors.difference)
    known = ~np.isnan(floor)
    allowed = np.fmax(judged.constants.noise_factor * floor, judged.bounds.local)
    return _decide_again(judged, judged.errors, _replaced(judged.bounds, known, allowed, "noise"))


def hold_to_golden(judged: Judged, by_candidate: Measured, by_reference: Measured) -> Judged:
    """Judges the candidate's distance from the golden run by the reference's distance from it.

    The difference of each row becomes the candidate's from the golden run; it is normal up to the larger of
    ``golden_factor`` times the reference's and one fresh computation. Rows without a partner in the golden run keep
    the judgement of two sides.
    """
    table = judged.table
    of_candidate = _spread(
        table, table.candidate, by_candidate[0], by_candidate[0].candidate, by_candidate[1].difference
    )
    of_reference = _spread(
        table, table.reference, by_reference[0], by_reference[0].candidate, by_reference[1].difference
    )
    known = ~np.isnan(of_candidate) & ~np.isnan(of_reference) & ~judged.errors.nonfinite
    allowed = np.fmax(judged.constants.golden_factor * of_reference, judged.bounds.local)
    difference = np.where(known, of_candidate, judged.errors.difference)
    return _decide_again(
        judged, replace(judged.errors, difference=difference), _replaced(judged.bounds, known, allowed, "golden")
    )


def _spread(
    table: PairTable, side: Side, other: PairTable, other_side: Side, values: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Brings one value per row of another table to the rows of this one that hold the same record."""
    found = np.full(len(table), np.nan)
    for rank in np.unique(table.rank).tolist():
        here, there = (
            np.flatnonzero((table.rank == rank) & side.present),
            np.flatnonzero((other.rank == rank) & other_side.present),
        )
        by_record = np.full(int(max(side.row[here].max(initial=-1), other_side.row[there].max(initial=-1))) + 1, np.nan)
        by_record[other_side.row[there]] = values[there]
        found[here] = by_record[side.row[here]]
    return found


def _replaced(bounds: Bounds, rows: NDArray[np.bool_], allowed: NDArray[np.float64], source: str) -> Bounds:
    name = np.array(source, dtype=object)
    total = np.where(rows, allowed, bounds.total)
    return replace(bounds, total=total, source=np.where(rows, name, bounds.source))


def _decide_again(judged: Judged, errors: Errors, bounds: Bounds) -> Judged:
    decisions = decide(judged.table, errors, bounds, judged.flow, judged.constants)
    return replace(judged, errors=errors, relative=relative(errors, judged.table), bounds=bounds, decisions=decisions)
