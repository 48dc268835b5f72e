"""Findings about a training that does not do what it should: nothing moves, nothing arrives, sums pile up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

from msprobe.core.robust import THRESHOLD, drift, median
from msprobe.core.scan.bad_cells import BACKWARD_STAGE, CONSUMED_STAGE, Flow
from msprobe.core.scan.findings import Finding
from msprobe.core.trend.anomalies import site_series
from msprobe.core.trend.kinds import KINDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.trend.index import TrendIndex

#: Steps that a parameter must be seen at, unmoved, to be called frozen.
LEAST_STEPS: Final = 4
#: Steps and parameters that the search for a forgotten zero_grad looks at.
_STEPS, _PARAMETERS, _LEAST_PARAMETERS = 12, 64, 4
#: Relative residuals: a sum explains the gradient to this, and the gradient of the step alone misses it by this.
_EXPLAINED: Final = 0.02
_UNEXPLAINED: Final = 0.05
#: A loss that does not change at all in so many steps.
_CONSTANT_STEPS: Final = 8
_MOST_NAMED: Final = 5


def training_findings(index: TrendIndex, *, before: float, skipped: Sequence[int] = ()) -> list[Finding]:
    """Gives what is wrong with the training in steps below ``before``; in ``skipped`` steps nothing was updated."""
    flow = Flow(index.sites)
    return [
        *_unmoved(index, flow, before, skipped),
        *_forgotten_zero_grad(index, flow, before),
        *_losses(index, before),
    ]


def _matrices(index: TrendIndex, before: float) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float64]]]:
    """Gives steps and, by column of the roll-up, matrices (steps, all sites); enough for parameters and scalars."""
    columns = ("low_norm", "high_norm", "high_mean", "high_mean_abs")
    parts = list(site_series(index, columns))
    kept = index.steps < before
    matrices = {name: np.concatenate([p.values[name] for p in parts], axis=1)[kept] for name in columns}
    return index.steps[kept], matrices


def _unmoved(index: TrendIndex, flow: Flow, before: float, skipped: Sequence[int]) -> Iterator[Finding]:
    """Finds parameters that gradients arrive at and that do not move, and parameters whose gradient is always zero."""
    steps, every = _matrices(index, before)
    matrices = {name: matrix[~np.isin(steps, list(skipped))] for name, matrix in every.items()}
    kinds = index.sites["kind"]
    values = np.flatnonzero((kinds == KINDS.index("parameter")) | (kinds == KINDS.index("parameter after step")))
    constant = np.ones(len(values), bool)
    for matrix in matrices.values():
        own = matrix[:, values]
        low, high = np.fmin.reduce(own, axis=0, initial=np.inf), np.fmax.reduce(own, axis=0, initial=-np.inf)
        constant &= (low == high) & (np.sum(np.isfinite(own), axis=0) >= LEAST_STEPS)
    gradients = np.flatnonzero((flow.stage >= BACKWARD_STAGE) & (flow.stage <= CONSUMED_STAGE))
    size = np.fmax.reduce(matrices["high_norm"][:, gradients], axis=0, initial=-np.inf)
    arrives = set(flow.parameter[gradients[size > 0]].tolist())
    seen = np.sum(np.isfinite(matrices["high_norm"][:, gradients]), axis=0)
    silent = {p for p in flow.parameter[gradients[(size == 0) & (seen >= LEAST_STEPS)]].tolist() if p not in arrives}
    judged = {p for p in flow.parameter[values].tolist() if p in arrives}
    moved = set(flow.parameter[values[~constant]].tolist())
    frozen = [s for s in values[constant].tolist() if flow.parameter[s] in judged and flow.parameter[s] not in moved]
    frozen = list({int(flow.parameter[s]): s for s in frozen}.values())
    if frozen:
        yield _frozen(index, frozen, len(judged))
    if silent:
        first = {int(flow.parameter[s]): s for s in gradients[::-1].tolist()}
        names = _named(index, [first[p] for p in sorted(silent)])
        sentence = f"The gradient of {_counted(len(silent), 'parameter')} is zero in every step: {names}."
        yield Finding(kind="no gradient", sentence=sentence, node=str(index.sites["node"][first[min(silent)]]))


def _frozen(index: TrendIndex, frozen: list[int], judged: int) -> Finding:
    if len(frozen) == judged:
        sentence = (
            f"No parameter moved, although gradients arrive at all {judged}: does the optimizer own them, is the "
            "learning rate zero?"
        )
    else:
        moved = f"{judged - len(frozen)} others did"
        verb = "was" if len(frozen) == 1 else "were"
        sentence = (
            f"{_counted(len(frozen), 'parameter')} {verb} not moved by the optimizer although gradients arrive, while "
            f"{moved}: {_named(index, frozen)}."
        )
    return Finding(kind="frozen", sentence=sentence, node=str(index.sites["node"][frozen[0]]))


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count != 1 else ''}"


def _named(index: TrendIndex, sites: list[int]) -> str:
    names = [
        ".".join(filter(None, (index.sites["node"][s], index.sites["argument"][s].partition(".")[0]))) for s in sites
    ]
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _forgotten_zero_grad(index: TrendIndex, flow: Flow, before: float) -> Iterator[Finding]:
    """Finds gradients that the optimizer consumed with those of the step before still in them.

    Means are linear: what is consumed is one factor (clipping, averaging) times the sum of the step's gradients, or
    with a forgotten ``zero_grad`` two factors times that and what was consumed before. Both are fitted over parameters.
    """
    fresh, consumed = _gradient_means(index, flow, before)
    if fresh.shape[0] < 3 or fresh.shape[1] < _LEAST_PARAMETERS:
        return
    hits, looked = [], 0
    for step in range(1, len(fresh)):
        alone, both, factors = _residuals(fresh[step], consumed[step], consumed[step - 1])
        looked += bool(np.isfinite(alone))
        if alone > _UNEXPLAINED and both < _EXPLAINED and 0.2 < factors[1] / factors[0] < 5:
            hits.append(step)
    if len(hits) >= 2 and 2 * len(hits) > looked:
        yield Finding(
            kind="zero_grad",
            sentence="zero_grad is missing: the consumed gradients contain those of the step before.",
            step=int(index.steps[hits[0]]),
            evidence=(
                f"in {len(hits)} of {looked} steps the sum of both explains the consumed gradient to "
                f"{_EXPLAINED:.0%}, the step's own alone misses it by more than {_UNEXPLAINED:.0%}",
            ),
        )


def _residuals(
    fresh: NDArray[np.float64], consumed: NDArray[np.float64], earlier: NDArray[np.float64]
) -> tuple[float, float, tuple[float, float]]:
    """Gives the relative residuals of consumed = a fresh, and of consumed = a fresh + b earlier, and (a, b).

    The means are in units of the consumed gradient's mean magnitude, so that those which cancel weigh nothing.
    """
    unknown = np.nan, np.nan, (np.nan, np.nan)
    kept = np.isfinite(fresh) & np.isfinite(consumed) & np.isfinite(earlier)
    size = float(np.linalg.norm(consumed[kept]))
    if kept.sum() < _LEAST_PARAMETERS or size == 0:
        return unknown
    columns = np.stack([fresh[kept], earlier[kept]], axis=1)
    residuals = []
    for width in (1, 2):
        solution = np.linalg.lstsq(columns[:, :width], consumed[kept], rcond=None)[0]
        residuals.append(float(np.linalg.norm(columns[:, :width] @ solution - consumed[kept])) / size)
    return residuals[0], residuals[1], (float(solution[0]), float(solution[1]))


def _gradient_means(index: TrendIndex, flow: Flow, before: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gives the means of fresh gradients, summed over micro-steps, and of consumed ones; shape (steps, parameters).

    Both are averaged over ranks, and in units of the parameter's mean magnitude of consumed gradients over all steps.
    """
    both = [set(flow.parameter[flow.stage == stage].tolist()) for stage in (BACKWARD_STAGE, CONSUMED_STAGE)]
    parameters = sorted(both[0] & both[1])[:_PARAMETERS]
    steps = index.steps[index.steps < before][:_STEPS]
    if not parameters or not len(steps):
        return np.zeros((0, 0)), np.zeros((0, 0))
    fresh, _ = _sums(index, flow, BACKWARD_STAGE, parameters, steps)
    consumed, magnitude = _sums(index, flow, CONSUMED_STAGE, parameters, steps)
    unit = median(magnitude)
    unit = np.where(unit > 0, unit, np.nan)
    return fresh / unit, consumed / unit


def _sums(
    index: TrendIndex, flow: Flow, stage: int, parameters: list[int], steps: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Gives mean and mean magnitude of a stage's gradients, summed over micro-steps, averaged over ranks."""
    column = np.full(int(flow.parameter.max()) + 1, -1, np.int64)
    column[parameters] = np.arange(len(parameters))
    sites = np.flatnonzero((flow.stage == stage) & (column[flow.parameter] >= 0)).tolist()
    files = [tile.file for block in index.blocks_of(steps) for tile in block.tiles]
    where = "site IN (SELECT unnest(?)) AND step BETWEEN ? AND ?"
    values = [sites, int(steps[0]), int(steps[-1])]
    rows = index.store.read(files, "site, step, rank, mean, mean_abs", where, values)
    at = np.searchsorted(steps, rows["step"]), column[flow.parameter[rows["site"]]]
    totals = np.zeros((3, len(steps), len(parameters)))
    np.add.at(totals[0], at, rows["mean"])
    np.add.at(totals[1], at, rows["mean_abs"])
    of_rank = np.unique(np.stack([*at, rows["rank"]]), axis=1)
    np.add.at(totals[2], (of_rank[0], of_rank[1]), 1)
    ranks = np.where(totals[2] > 0, totals[2], np.nan)
    return totals[0] / ranks, totals[1] / ranks


def _losses(index: TrendIndex, before: float) -> Iterator[Finding]:
    """Finds a loss that never changes or that rises."""
    names = index.sites["argument"]
    scalars = np.flatnonzero(index.sites["kind"] == KINDS.index("scalar"))
    sites = [s for s in scalars.tolist() if "loss" in str(names[s]).lower() and "scale" not in str(names[s]).lower()]
    if not sites:
        return
    _, matrices = _matrices(index, before)
    for site in sites:
        series = matrices["high_mean"][:, site]
        series = series[np.isfinite(series)]
        if len(series) >= _CONSTANT_STEPS and (series == series[0]).all():
            yield Finding(
                "loss", f"The {names[site]} is {series[0]:.6g} in all {len(series)} steps: nothing is learnt."
            )
        elif drift(series) > THRESHOLD:
            quarter = len(series) // 4
            first, last = float(median(series[:quarter])), float(median(series[-quarter:]))
            yield Finding("loss", f"The {names[site]} rises: from {first:.4g} to {last:.4g} over {len(series)} steps.")
