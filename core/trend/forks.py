"""Where two runs part: the first step at which a site of one leaves the band of the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from msprobe.core.dtypes import unit_roundoff
from msprobe.core.errors import TrendError
from msprobe.core.robust import MAD_TO_DEVIATION, median
from msprobe.core.trend.anomalies import site_series

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.trend.index import TrendIndex

#: A difference counts from this many deviations of the reference's own movement from step to step.
FORK_DEVIATIONS: Final = 6.0
#: And from this many roundings of the site's format, relative to its norm: two runs on other hardware differ by less.
FORK_ROUNDINGS: Final = 64.0


@dataclass(frozen=True, slots=True)
class Fork:
    """One site that left the band: numbers of the site in either index, the first step, both norms, the band's half.

    ``from_step`` is the last common step before, at which the two still agreed (-1: they never did).
    """

    candidate_site: int
    reference_site: int
    step: int
    candidate: float
    reference: float
    allowed: float
    from_step: int


def forks(candidate: TrendIndex, reference: TrendIndex) -> list[Fork]:
    """Gives the sites that leave the band, earliest step first, then in order of execution.

    A site's band at a step is the reference's norm (highest over ranks) plus and minus the larger of
    ``FORK_DEVIATIONS`` robust deviations of its steps' differences, and ``FORK_ROUNDINGS`` roundings. A site that is
    non-finite on one side only has left it as well.

    Raises:
        TrendError: The runs have no site or no step in common.
    """
    common = [
        (n, reference.sites.numbers[key])
        for key, n in candidate.sites.numbers.items()
        if key in reference.sites.numbers
    ]
    steps = np.intersect1d(candidate.steps, reference.steps)
    if not common or not len(steps):
        what = "site" if not common else "step"
        raise TrendError(f"{candidate.path} and {reference.path} have no {what} in common")
    sites = np.array(common, np.int64)
    left, left_bad = _norms(candidate, sites[:, 0], steps)
    right, right_bad = _norms(reference, sites[:, 1], steps)
    allowed = np.fmax(_movement(right), _rounding(reference, sites[:, 1]) * np.abs(right))
    outside = (np.abs(left - right) > allowed) | (left_bad != right_bad)
    found = []
    for j in np.flatnonzero(outside.any(axis=0)).tolist():
        i = int(np.argmax(outside[:, j]))
        before = int(steps[i - 1]) if i else -1
        numbers = float(left[i, j]), float(right[i, j]), float(allowed[i, j])
        found.append(Fork(int(sites[j, 0]), int(sites[j, 1]), int(steps[i]), *numbers, before))
    return sorted(found, key=lambda fork: (fork.step, int(candidate.sites.position[fork.candidate_site])))


def _norms(
    index: TrendIndex, sites: NDArray[np.int64], steps: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Gives the highest norm over ranks and whether anything is non-finite, both of shape (steps, sites)."""
    parts = list(site_series(index, ("high_norm",)))
    rows = np.searchsorted(index.steps, steps)
    values = np.concatenate([part.values["high_norm"] for part in parts], axis=1)
    bad = np.concatenate([part.bad for part in parts], axis=1)
    return values[np.ix_(rows, sites)], bad[np.ix_(rows, sites)]


def _movement(norms: NDArray[np.float64]) -> NDArray[np.float64]:
    """Gives how far a norm may lie off: a multiple of the robust deviation of its differences between steps."""
    if len(norms) < 3:
        return np.zeros(norms.shape[1])
    deviation: NDArray[np.float64] = MAD_TO_DEVIATION * median(np.abs(np.diff(norms, axis=0))) / 2**0.5
    return FORK_DEVIATIONS * np.nan_to_num(deviation)


def _rounding(index: TrendIndex, sites: NDArray[np.int64]) -> NDArray[np.float64]:
    units = [max(unit_roundoff(dtype), unit_roundoff("fp32")) for dtype in index.sites["dtype"][sites]]
    return FORK_ROUNDINGS * np.array(units)
