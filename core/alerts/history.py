"""What was normal at each site: the last observations in a ring, bounded, judged by ``core.robust``.

A value departs when all of these hold, each against its own kind of false alarm:

* its score is beyond ``core.robust.THRESHOLD`` (noise);
* it is so many times above or below the median as ``LIMITS`` says for its kind (sites that hardly move; gradients have
  no lower limit, since an expert that got one easy token has one a hundred thousand times smaller, which is no fault:
  that of the whole model has, and zero has);
* it is ``REACH`` times further out, in logarithms, than the furthest value that was taken for normal (heavy tails and
  trends: a learning rate's warm-up moves everything, but no step moves it much further than the ring has seen).

Values that depart do not enter the ring, so that one cannot hide the next; after ``ACCEPTED`` in a row they are the new
normal. Non-finite values never enter it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from msprobe.core.alerts.view import Past
from msprobe.core.robust import THRESHOLD, normal_of
from msprobe.core.sites import Direction, Role

Array = NDArray[Any]

#: Observations that are kept of each site, and how many there must be before any is judged.
WINDOW: Final = 64
LEAST: Final = 24
#: Centre and scale are made anew after so many observations.
RENEWED: Final = 8
#: By which factor above and below its median a value departs: in general, and by direction and role.
USUAL: Final = (4.0, 8.0)
LIMITS: Final[Mapping[tuple[Direction, Role], tuple[float, float]]] = {
    **{(d, Role.GRADIENT): (10.0, np.inf) for d in Direction},
    **{(Direction.BACKWARD, r): (10.0, np.inf) for r in (Role.INPUT, Role.OUTPUT, Role.SAVED)},
    **{(d, Role.DERIVED): (10.0, np.inf) for d in Direction},
    (Direction.UPDATE, Role.STATE): (np.inf, np.inf),  # it follows the gradient, slowly
}
#: See above.
REACH: Final = 2.0
ACCEPTED: Final = 12
#: Centres that are kept for slow drift, one for each ``WINDOW`` observations.
CENTRES: Final = 8
#: Sites that are followed at most; 2.2 kB each.
MOST_SITES: Final = 20_000
#: What is followed of each site.
FOLLOWED: Final = ("rms", "max_abs")
_COUNTS: Final = ("count", "zeros", "constants", "nans", "infs")


class History:
    """The past of all sites of one rank; ``judge`` before ``take``."""

    def __init__(self) -> None:
        self._capacity = 0
        self._ring = np.empty((WINDOW, 0, len(FOLLOWED)))
        self._centres = np.empty((CENTRES, 0))
        self._per_site: dict[str, Array] = {}
        self._grow(256)

    def judge(self, site: Array, rows: dict[str, Array], scale: Array, limits: Array) -> Past:
        """Compares rows with the past of their sites; followed values are divided by ``scale`` first.

        ``limits`` holds for each row the logarithms of the factors up and down that make a departure.
        """
        self._grow(int(site.max(initial=0)) + 1)
        site = np.minimum(site, self._capacity - 1)
        known, values = self._per_site, np.stack([rows[name] / scale for name in FOLLOWED], axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            distance = np.log(values) - known["centre"][site]
            score = distance / known["scale"][site]
        beyond = (np.abs(score) > THRESHOLD) & ((distance > limits[:, :1]) | (-distance > limits[:, 1:]))
        beyond &= np.abs(distance) > REACH * known["reach"][site]
        beyond &= (values > 0) & np.isfinite(values)
        worst = np.argmax(np.where(np.isnan(score), -1.0, np.abs(score)), axis=1)
        rank = np.arange(len(site))
        worst = np.where(beyond.any(axis=1), np.argmax(beyond, axis=1), worst)
        counts = {name: known[name][site] for name in _COUNTS}
        ready = counts["count"] >= LEAST
        return Past(
            score=score[rank, worst],
            factor=np.exp(distance[rank, worst]),
            departs=beyond.any(axis=1) & ready,
            drift=known["centre"][site, 0] - np.nanmin(_or_inf(self._centres[:, site]), axis=0),
            **counts,
        )

    def take(self, site: Array, rows: dict[str, Array], scale: Array, past: Past) -> None:
        """Adds the rows to the past: the last one of each site, unless it departs."""
        known = self._per_site
        site = np.minimum(site, self._capacity - 1)
        finite = rows["nan"] + rows["pos_inf"] + rows["neg_inf"] == 0
        zero = finite & (rows["norm"] == 0)
        constant = finite & ~zero & (rows["min"] == rows["max"]) & (rows["finite"] > 1)
        holds = {"zeros": zero, "constants": constant, "nans": rows["nan"] > 0}
        holds["infs"] = rows["pos_inf"] + rows["neg_inf"] > 0
        for name, which in holds.items():
            np.add.at(known[name], site[which], 1)
        np.add.at(known["count"], site, 1)
        streak = known["streak"]
        streak[site] = np.where(past.departs, streak[site] + 1, 0)
        kept = finite & ~zero & (~past.departs | (streak[site] > ACCEPTED))
        last = {int(s): i for i, s in zip(np.flatnonzero(kept), site[kept], strict=True)}
        if last:
            self._put(np.fromiter(last, np.int64), np.fromiter(last.values(), np.int64), rows, scale)

    def _put(self, site: Array, row: Array, rows: dict[str, Array], scale: Array) -> None:
        known = self._per_site
        place = known["kept"][site] % WINDOW
        for i, name in enumerate(FOLLOWED):
            self._ring[place, site, i] = rows[name][row] / scale[row]
        known["kept"][site] += 1
        kept = known["kept"][site]
        due = site[(kept >= LEAST) & (kept - known["renewed"][site] >= RENEWED)]
        if len(due):
            self._renew(due)

    def _renew(self, site: Array) -> None:
        """Makes centre, scale and reach of some sites anew."""
        known, ring = self._per_site, self._ring[:, site]
        normal = normal_of(ring, magnitudes=True)
        known["centre"][site], known["scale"][site] = normal.centre, normal.scale
        with np.errstate(divide="ignore", invalid="ignore"):
            distance = np.abs(np.log(ring) - normal.centre)
        known["reach"][site] = np.nanmax(np.where(np.isfinite(distance), distance, 0.0), axis=0)
        known["renewed"][site] = known["kept"][site]
        turn = known["kept"][site] // WINDOW
        fresh = (turn > known["turn"][site]) & (known["kept"][site] >= WINDOW)
        self._centres[known["turn"][site[fresh]] % CENTRES, site[fresh]] = normal.centre[fresh, 0]
        known["turn"][site[fresh]] = turn[fresh]

    def _grow(self, needed: int) -> None:
        needed = min(needed, MOST_SITES)
        if needed <= self._capacity:
            return
        more = min(max(needed, 2 * self._capacity), MOST_SITES) - self._capacity
        self._ring = np.concatenate([self._ring, np.full((WINDOW, more, len(FOLLOWED)), np.nan)], axis=1)
        self._centres = np.concatenate([self._centres, np.full((CENTRES, more), np.nan)], axis=1)
        zeros = (*_COUNTS, "kept", "renewed", "streak", "turn")
        fresh: dict[str, Array] = {name: np.zeros(more, np.int64) for name in zeros}
        fresh |= {name: np.full((more, len(FOLLOWED)), np.nan) for name in ("centre", "scale", "reach")}
        old = self._per_site
        self._per_site = {n: np.concatenate([old[n], v]) if n in old else v for n, v in fresh.items()}
        self._capacity += more


def limits_of(direction: Array, role: Array) -> Array:
    """Gives the logarithms of the factors up and down for sites, from codes of direction and role; shape (n, 2)."""
    table = np.empty((len(Direction), len(Role), 2))
    for i, one in enumerate(Direction):
        for j, other in enumerate(Role):
            table[i, j] = LIMITS.get((one, other), USUAL)
    found: Array = np.log(table[direction, role])
    return found


def _or_inf(centres: Array) -> Array:
    """Puts infinity where no centre is known yet, so that nothing has drifted from there."""
    return np.where(np.isnan(centres), np.inf, centres)
