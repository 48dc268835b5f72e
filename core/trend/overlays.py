"""Two runs as one picture: the difference or ratio of what they have in common."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from msprobe.core.errors import TrendError
from msprobe.core.trend.slices import Query, Slice, cut
from msprobe.core.trend.states import State

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.trend.index import TrendIndex
    from msprobe.core.trend.pooling import Axis

WAYS: Final = ("difference", "ratio")


@dataclass(frozen=True, slots=True)
class Overlay:
    """``values`` of shape (height, width), NaN where a side has none; ``candidate`` and ``reference`` as they are.

    Site numbers on the axes are those of the candidate. ``states`` are the worse of both, absent where either is.
    """

    values: NDArray[np.float64]
    states: NDArray[np.uint8]
    candidate: Slice
    reference: Slice


def overlay(candidate: TrendIndex, reference: TrendIndex, query: Query, *, way: str = "difference") -> Overlay:
    """Compares two runs cell by cell at their common steps, ranks and sites; ``query`` speaks of the candidate's sites.

    Where cells are pooled, pooled values are compared.

    Raises:
        TrendError: There is nothing in common, or ``way`` is unknown.
    """
    if way not in WAYS:
        raise TrendError(f"no way {way!r} to compare two runs; there are: {', '.join(WAYS)}")
    own, theirs = _common_sites(candidate, reference, query)
    steps = np.intersect1d(candidate.steps, reference.steps)
    ranks = np.intersect1d(candidate.ranks, reference.ranks)
    wanted = ranks if query.ranks is None else np.intersect1d(ranks, np.asarray(query.ranks))
    if not len(own) or not len(steps) or not len(wanted):
        raise TrendError(f"{candidate.path} and {reference.path} have nothing of that in common")
    low, high = query.steps or (int(steps[0]), int(steps[-1]))
    inside = steps[(steps >= low) & (steps <= high)]
    if query.third == "site" and query.fixed is not None:
        theirs_fixed: int | None = int(theirs[np.flatnonzero(own == query.fixed)[0]]) if query.fixed in own else -1
    else:
        theirs_fixed = query.fixed
    both = replace(query, kind=None, steps=(int(inside[0]), int(inside[-1])), ranks=wanted.tolist())
    left = cut(candidate, replace(both, sites=own.tolist()))
    right = cut(reference, replace(both, sites=theirs.tolist(), fixed=theirs_fixed))
    right = replace(right, x=_renamed(right.x, left.x), y=_renamed(right.y, left.y))
    with np.errstate(divide="ignore", invalid="ignore"):
        values = left.values - right.values if way == "difference" else left.values / right.values
    absent = (left.states == State.ABSENT) | (right.states == State.ABSENT)
    states = np.where(absent, np.uint8(State.ABSENT), np.maximum(left.states, right.states))
    return Overlay(np.where(absent, np.nan, values), states, left, right)


def _renamed(axis: Axis, like: Axis) -> Axis:
    return like if axis.name == "site" else axis


def _common_sites(
    candidate: TrendIndex, reference: TrendIndex, query: Query
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Gives the sites that both have, as wanted, in the candidate's numbers and in the reference's."""
    if query.sites is not None:
        wanted = np.asarray(query.sites, np.int64)
    elif query.third == "site" and query.fixed is not None:
        wanted = np.array([query.fixed], np.int64)
    else:
        wanted = candidate.find_sites(kind=query.kind)
    numbers = reference.sites.numbers
    pairs = [(site, numbers[key]) for site in wanted.tolist() for key in [candidate.sites.key(site)] if key in numbers]
    both = np.array(pairs, np.int64).reshape(-1, 2)
    return both[:, 0], both[:, 1]
