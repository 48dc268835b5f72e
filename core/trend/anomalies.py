"""What is unlike its own past, and which rank is unlike its replicas: from the roll-ups, in one pass over them.

Over steps, each site's lowest minimum, highest maximum and norm is scored against the ``WINDOW`` steps before it: a
trend that is normal in training (a falling loss, growing weights) moves with its window. A score is not enough where
so many are made (see ``core.robust``), so an anomaly must also differ from its past by a plain factor (``FACTOR``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from msprobe.core.robust import LEAST_VALUES, THRESHOLD, normal_of
from msprobe.core.trend.rollups import SCORED
from msprobe.core.trend.states import NON_FINITE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.trend.index import TrendIndex

#: Steps of history that a step is scored against, and how many steps share one history.
WINDOW: Final = 64
_STRIDE: Final = 8
#: An anomaly of a magnitude is at least this many times its normal value, or its inverse; so is one of a minimum or
#: maximum, where only growth counts: a rare token that is not there makes a maximum fall. It must besides be off by
#: ``SPREADS`` times the widest of its history, because extremes have heavy tails.
FACTOR: Final = 2.0
SPREADS: Final = 3.0
#: A quantity that spans this factor in its history may well become zero.
_DECADES: Final = 1e3
#: Cells of roll-ups that are looked at together.
_CHUNK_CELLS: Final = 4_000_000
#: Statistic, column of the roll-up, whether it is a magnitude.
_WATCHED: Final = (
    ("norm", "high_norm", True),
    ("norm", "low_norm", True),
    ("min", "low_min", False),
    ("max", "high_max", False),
)


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One cell out of its band. ``rank`` is -1 when it is about all ranks together; ``against`` is steps or replicas.

    ``low`` and ``high`` bound what was normal there.
    """

    site: int
    step: int
    rank: int
    statistic: str
    value: float
    low: float
    high: float
    score: float
    against: str


def anomalies(index: TrendIndex, *, threshold: float = THRESHOLD) -> list[Anomaly]:
    """Gives all anomalies, the worst of each (site, step, statistic), most extreme first."""
    found: dict[tuple[int, int, str], Anomaly] = {}
    for each in (*_over_steps(index, threshold), *_over_replicas(index, threshold)):
        key = each.site, each.step, each.statistic
        if key not in found or abs(each.score) > abs(found[key].score):
            found[key] = each
    return sorted(found.values(), key=lambda a: (-abs(a.score), a.step, index.sites.position[a.site]))


@dataclass(frozen=True)
class Series:
    """A roll-up as a matrix: ``values`` by column name, each of shape (steps, sites); absent cells are NaN.

    ``bad`` marks cells with NaN or Inf in them.
    """

    steps: NDArray[np.int64]
    sites: NDArray[np.int64]
    values: dict[str, NDArray[np.float64]]
    bad: NDArray[np.bool_]
    #: Marks sites of experts.
    experts: NDArray[np.bool_]


def site_series(index: TrendIndex, columns: tuple[str, ...]) -> Iterator[Series]:
    """Gives the roll-up over ranks as matrices, so many sites at a time that memory stays bounded."""
    files = [block.over_ranks for block in index.manifest.blocks]
    steps = index.steps
    width = max(1, _CHUNK_CELLS // max(1, len(steps)))
    names = ", ".join(f'"{name}"' for name in columns)
    for first in range(0, len(index.sites), width):
        last = min(first + width, len(index.sites)) - 1
        rows = index.store.read(files, f"site, step, state, {names}", "site BETWEEN ? AND ?", [first, last])
        at = np.searchsorted(steps, rows["step"]), rows["site"].astype(np.int64) - first
        shape = (len(steps), last - first + 1)
        bad = np.zeros(shape, bool)
        bad[at] = rows["state"] >= NON_FINITE
        matrices = {name: np.full(shape, np.nan) for name in columns}
        for name, matrix in matrices.items():
            matrix[at] = rows[name]
        yield Series(steps, np.arange(first, last + 1), matrices, bad, index.sites["expert"][first : last + 1] >= 0)


def _over_steps(index: TrendIndex, threshold: float) -> Iterator[Anomaly]:
    columns = tuple(dict.fromkeys(column for _, column, _ in _WATCHED))
    for series in site_series(index, columns):
        for statistic, column, magnitude in _WATCHED:
            yield from _departures(series, statistic, series.values[column], threshold, magnitudes=magnitude)


def _departures(
    series: Series, statistic: str, values: NDArray[np.float64], threshold: float, *, magnitudes: bool
) -> Iterator[Anomaly]:
    for start in range(LEAST_VALUES, len(values), _STRIDE):
        history, block = values[max(0, start - WINDOW) : start], values[start : start + _STRIDE]
        normal = normal_of(history, magnitudes=magnitudes)
        score = normal.score(block)
        with np.errstate(invalid="ignore", divide="ignore"):
            if magnitudes:
                far = np.abs(np.log(np.abs(block)) - normal.centre) > np.log(FACTOR)
                far &= (block != 0) | ~_may_be_zero(history, series.experts)
            else:
                spread = np.nanmax(np.where(np.isfinite(history), np.abs(history - normal.centre), 0.0), axis=0)
                off = np.abs(block - normal.centre)
                far = (off > SPREADS * spread) & (off > (FACTOR - 1) * np.abs(normal.centre))
            marked = (np.abs(score) > threshold) & far
        if not marked.any():
            continue
        low, high = normal.band(threshold)
        for i, j in zip(*np.nonzero(marked), strict=True):
            place = int(series.sites[j]), int(series.steps[start + i]), -1
            yield Anomaly(
                *place, statistic, float(block[i, j]), float(low[j]), float(high[j]), float(score[i, j]), "steps"
            )


def _may_be_zero(history: NDArray[np.float64], experts: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Marks sites at which a zero is no collapse: experts (without tokens), those that were zero, or span decades."""
    with np.errstate(invalid="ignore"):
        sizes = np.where(np.isfinite(history), np.abs(history), np.nan)
        low, high = np.fmin.reduce(sizes, axis=0), np.fmax.reduce(sizes, axis=0)
        return np.asarray(experts | ~(low > 0) | (high > _DECADES * low))


def _over_replicas(index: TrendIndex, threshold: float) -> Iterator[Anomaly]:
    files = [block.over_ranks for block in index.manifest.blocks]
    select = "site, step, peer_rank, peer_statistic, peer_score, low_norm, high_norm, low_min, high_max"
    rows = index.store.read(files, select, "NOT isnan(peer_score) AND abs(peer_score) > ?", [threshold])
    for i in range(len(rows.get("site", ()))):
        name, score = SCORED[int(rows["peer_statistic"][i])], float(rows["peer_score"][i])
        if np.isinf(score) and index.sites["expert"][rows["site"][i]] >= 0:
            continue  # an expert without tokens on this rank
        if name == "norm":
            value = float(rows["high_norm" if score > 0 else "low_norm"][i])
        else:
            value = float(max(abs(rows["low_min"][i]), abs(rows["high_max"][i]))) if score > 0 else float("nan")
        place = int(rows["site"][i]), int(rows["step"][i]), int(rows["peer_rank"][i])
        yield Anomaly(*place, name, value, float("nan"), float("nan"), score, "replicas")
