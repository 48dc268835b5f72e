"""Slices of a run: any two of step, rank and site against each other, the third fixed or pooled; series along one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from msprobe.core.errors import TrendError
from msprobe.core.suggestions import closest
from msprobe.core.trend.kinds import KINDS
from msprobe.core.trend.pooling import Axis, pool
from msprobe.core.trend.states import State

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.trend.index import TrendIndex

AXES: Final = ("step", "rank", "site")

#: What can be asked for, as SQL over the columns of a tile, and over those of a roll-up.
STATISTICS: Final[Mapping[str, str]] = {
    "min": '"min"',
    "max": '"max"',
    "mean": '"mean"',
    "mean_abs": '"mean_abs"',
    "std": '"std"',
    "norm": '"norm"',
    "rms": '"norm" / sqrt(greatest("elements", 1))',
    "largest": 'greatest(abs("min"), abs("max"))',
    "nan": '"nan"::DOUBLE',
    "pos_inf": '"pos_inf"::DOUBLE',
    "neg_inf": '"neg_inf"::DOUBLE',
    "zero": '"zero"::DOUBLE',
    "elements": '"elements"::DOUBLE',
}
#: Columns of ``TrendIndex.origins``.
ORIGIN_COLUMNS: Final = ("step", "site", "rank")
_COUNTS: Final = ("nan", "pos_inf", "neg_inf", "zero", "elements")
_ROLL_UPS: Final = {"rank": "over_ranks", "step": "over_steps", "site": "over_sites"}


@dataclass(frozen=True, slots=True)
class Query:
    """What picture is wanted.

    ``x`` and ``y`` are two of ``AXES``. ``fixed`` is the value of the third, None to pool over it. ``sites`` (global
    numbers, in the order wanted) or ``kind`` choose the sites; None: all. ``steps`` and ``ranks`` limit the others,
    ``micro_step`` None pools over micro-steps. ``lowest`` keeps the lowest value of a pixel; by default that is so for
    the statistic ``min`` alone. ``width`` and ``height`` are the most pixels.

    Raises:
        TrendError: An axis, statistic or kind is unknown.
    """

    x: str
    y: str
    statistic: str = "norm"
    fixed: int | None = None
    kind: str | None = None
    sites: Sequence[int] | None = None
    steps: tuple[int, int] | None = None
    ranks: Sequence[int] | None = None
    micro_step: int | None = None
    lowest: bool | None = None
    width: int = 10_000
    height: int = 10_000

    def __post_init__(self) -> None:
        _check("axis", self.x, AXES)
        _check("axis", self.y, AXES)
        _check("statistic", self.statistic, tuple(STATISTICS))
        if self.kind is not None:
            _check("kind", self.kind, KINDS)
        if self.x == self.y:
            raise TrendError(f"both axes are {self.x!r}; choose two of {', '.join(AXES)}")
        if min(self.width, self.height) < 1:
            raise TrendError(f"a picture of {self.width} x {self.height} pixels has none; ask for 1 x 1 at least")

    @property
    def third(self) -> str:
        """The axis that is fixed or pooled."""
        return next(axis for axis in AXES if axis not in (self.x, self.y))

    @property
    def keeps_lowest(self) -> bool:
        """Whether a pixel keeps the lowest of its values."""
        return self.statistic == "min" if self.lowest is None else self.lowest


@dataclass(frozen=True, slots=True)
class Slice:
    """A picture: ``values`` float64 (height, width) and ``states`` uint8 (``states.State``) of the same shape.

    A cell with NaN among its elements has the statistic of its finite ones as value, and says so by its state.
    """

    values: NDArray[np.float64]
    states: NDArray[np.uint8]
    x: Axis
    y: Axis
    query: Query = field(repr=False)


def _check(what: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        near = closest(given, known)
        hint = f" Did you mean {near!r}?" if near else ""
        raise TrendError(f"no {what} {given!r}.{hint} There are: {', '.join(known)}.")


def cut(index: TrendIndex, query: Query) -> Slice:
    """Gives the picture that a query asks for.

    Raises:
        TrendError: The fixed value is not in the run.
    """
    domain = {"step": _steps(index, query), "rank": _ranks(index, query), "site": _sites(index, query)}
    if query.fixed is not None:
        if query.fixed not in domain[query.third]:
            raise TrendError(f"{index.path}: has no {query.third} {query.fixed}")
        domain[query.third] = np.array([query.fixed], np.int64)
    x, y = Axis.of(query.x, domain[query.x], query.width), Axis.of(query.y, domain[query.y], query.height)
    cells = _cells(index, query, domain)
    pixels = np.zeros(0, np.int64)
    if cells:
        column, row = x.pixel_of(cells[query.x]), y.pixel_of(cells[query.y])
        pixels = np.where((column < 0) | (row < 0), -1, row * x.pixels + column)
    values = cells.get("value", np.zeros(0)).astype(np.float64, copy=False)
    states = cells.get("state", np.zeros(0, np.uint8))
    pooled, worst = pool(pixels, values, states, x.pixels * y.pixels, lowest=query.keeps_lowest)
    _mark_origins(index, domain, x, y, worst)
    shape = (y.pixels, x.pixels)
    return Slice(pooled.reshape(shape), worst.reshape(shape), x, y, query)


def _mark_origins(
    index: TrendIndex, domain: Mapping[str, NDArray[np.int64]], x: Axis, y: Axis, worst: NDArray[np.uint8]
) -> None:
    """Raises pixels in which a NaN arose, as far as the index was told where that was."""
    if not len(index.origins):
        return
    places = dict(zip(ORIGIN_COLUMNS, index.origins.T, strict=True))
    inside = np.ones(len(index.origins), bool)
    for axis, wanted in domain.items():
        inside &= np.isin(places[axis], wanted)
    pixels = (y.pixel_of(places[y.name]) * x.pixels + x.pixel_of(places[x.name]))[inside]
    worst[pixels[worst[pixels] == State.NAN]] = State.NAN_MADE


def _steps(index: TrendIndex, query: Query) -> NDArray[np.int64]:
    low, high = query.steps or (-(2**62), 2**62)
    return index.steps[(index.steps >= low) & (index.steps <= high)]


def _ranks(index: TrendIndex, query: Query) -> NDArray[np.int64]:
    return index.ranks if query.ranks is None else np.asarray(query.ranks, np.int64)


def _sites(index: TrendIndex, query: Query) -> NDArray[np.int64]:
    if query.sites is not None:
        return np.asarray(query.sites, np.int64)
    order = index.sites.order
    return order if query.kind is None else order[index.sites["kind"][order] == KINDS.index(query.kind)]


def _cells(index: TrendIndex, query: Query, domain: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[Any]]:
    """Reads the cells of the picture: from a roll-up where one has what is asked for, else from the tiles."""
    if query.fixed is None and query.micro_step is None and _is_rolled_up(query):
        return _rolled_cells(index, query, domain)
    return _tile_cells(index, query, domain)


def _is_rolled_up(query: Query) -> bool:
    """Tells whether a roll-up pools over all that the third axis has, and knows the statistic."""
    limits = {"step": query.steps, "rank": query.ranks, "site": query.sites}
    low_unknown = query.keeps_lowest and query.statistic in (*_COUNTS, "largest")
    return limits[query.third] is None and query.statistic != "rms" and not low_unknown


def _rolled_cells(index: TrendIndex, query: Query, domain: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[Any]]:
    end = "low" if query.keeps_lowest else "high"
    name = query.statistic
    value = f'"high_{name}"::DOUBLE' if name in _COUNTS else f'"{end}_{name}"'
    if name == "largest":
        value = 'greatest(abs("low_min"), abs("high_max"))'
    keys = [query.x, query.y]
    select = f"{query.x}, {query.y}, state, {value} AS value"
    conditions, values = _conditions(domain, keys)
    if query.third == "site" and query.kind is not None:
        conditions.append("kind = ?")
        values.append(KINDS.index(query.kind))
    files = [getattr(block, _ROLL_UPS[query.third]) for block in index.blocks_of(domain["step"])]
    return index.store.read(files, select, " AND ".join(conditions), values)


def _tile_cells(index: TrendIndex, query: Query, domain: Mapping[str, NDArray[np.int64]]) -> dict[str, NDArray[Any]]:
    conditions, values = _conditions(domain, AXES)
    if query.micro_step is not None:
        conditions.append("micro_step = ?")
        values.append(query.micro_step)
    third = domain[query.third]
    if len(third) > 1:
        conditions.append(f"{query.third} IN (SELECT unnest(?))")
        values.append(third.tolist())
    ranks = domain["rank"]
    files = [
        tile.file
        for block in index.blocks_of(domain["step"])
        for tile in block.tiles
        if len(ranks) and ranks.min() <= tile.last_rank and ranks.max() >= tile.first_rank
    ]
    select = f"{query.x}, {query.y}, state, {STATISTICS[query.statistic]} AS value"
    return index.store.read(files, select, " AND ".join(conditions), values)


def _conditions(domain: Mapping[str, NDArray[np.int64]], axes: Sequence[str]) -> tuple[list[str], list[Any]]:
    """Limits rows to the span of each axis; what lies between and is not wanted falls off the picture."""
    conditions, values = [], []
    for axis in axes:
        wanted = domain[axis]
        if not len(wanted):
            return ["false"], []
        low, high = int(wanted.min()), int(wanted.max())
        conditions.append(f"{axis} = ?" if low == high else f"{axis} BETWEEN ? AND ?")
        values += [low] if low == high else [low, high]
    return conditions, values
