"""What went into a computation and why its result is not finite, as far as recorded numbers tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from msprobe.core.dtypes import FORMATS
from msprobe.core.scan.findings import spans
from msprobe.core.sites import Direction, Role
from msprobe.core.trend.states import NON_FINITE, State

if TYPE_CHECKING:
    from msprobe.core.scan.bad_cells import Flow
    from msprobe.core.trend.index import TrendIndex

#: An operand this close to the largest number of its format can overflow in one product.
_NEAR_OVERFLOW: Final = 1e-3
#: Arguments under which the load of each expert is recorded, in tokens or shares.
_LOADS: Final = ("load", "tokens_per_expert")
_COUNTS: Final = ("state", "elements", "nan", "pos_inf", "neg_inf", "zero")
_COLUMNS: Final = ("site", "micro_step", "min", "max", *_COUNTS)


_FORWARD, _BACKWARD = Direction.FORWARD.value, Direction.BACKWARD.value
#: What feeds the results of a node in each direction, of a parameter its own, where no data flow is known.
_FEEDING: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    _FORWARD: ((_FORWARD, "input"), (_FORWARD, "parameter"), (_FORWARD, "buffer")),
    _BACKWARD: ((_BACKWARD, "input"), (_FORWARD, "input"), (_FORWARD, "parameter")),
    Direction.REDUCE.value: ((_BACKWARD, "gradient"),),
    Direction.UPDATE.value: ((Direction.UPDATE.value, "gradient"), (_BACKWARD, "gradient"), (_FORWARD, "parameter")),
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell with its numbers."""

    site: int
    name: str
    dtype: str
    shape: str
    low: float
    high: float
    state: int
    elements: int
    nan: int
    pos_inf: int
    neg_inf: int
    zero: int

    @property
    def is_usually_full(self) -> bool:
        """Tells whether the shape that is known of the site has elements."""
        return bool(self.shape) and "0" not in self.shape.split("x")

    @property
    def text(self) -> str:
        """Says what the cell holds: its range, or what it is instead."""
        if self.state == State.EMPTY:
            return f"{self.name}: empty" + (f" ({self.shape} where it is not)" if self.is_usually_full else "")
        if self.state == State.UNMEASURED:
            return f"{self.name}: not measured"
        bad = [(self.nan, "NaN"), (self.pos_inf, "+Inf"), (self.neg_inf, "-Inf")]
        counts = ", ".join(f"{count:,} {word}" for count, word in bad if count)
        if self.state == State.ZERO:
            return f"{self.name}: all {self.elements:,} elements are zero"
        finite = "no finite element" if np.isnan(self.low) else f"from {self.low:.4g} to {self.high:.4g}"
        return f"{self.name}: {finite}" + (f", {counts} of {self.elements:,}" if counts else "")


def cells_at(index: TrendIndex, sites: list[int], *, step: int, rank: int, micro_step: int) -> dict[int, Cell]:
    """Gives what some sites held in one micro-step of a rank; parameters and buffers of the step's first."""
    if not sites:
        return {}
    files = [
        tile.file
        for block in index.blocks_of(np.array([step]))
        for tile in block.tiles
        if tile.first_rank <= rank <= tile.last_rank
    ]
    select = ", ".join(f'"{name}"' for name in _COLUMNS)
    where = "step = ? AND rank = ? AND site IN (SELECT unnest(?))"
    rows = index.store.read(files, select, where, [step, rank, sorted(set(sites))])
    found: dict[int, Cell] = {}
    for i in np.argsort(rows["micro_step"] != micro_step, kind="stable")[::-1].tolist():
        site = int(rows["site"][i])
        counts = [int(rows[name][i]) for name in _COUNTS]
        texts = index.sites.name(site), str(index.sites["dtype"][site]), str(index.sites["shape"][site])
        found[site] = Cell(site, *texts, float(rows["min"][i]), float(rows["max"][i]), *counts)
    return found


@dataclass(frozen=True, slots=True)
class Reason:
    """Why, in a clause that follows a colon; "" when it is not known. ``operands`` say what went in."""

    clause: str
    operands: tuple[str, ...]
    operands_finite: bool


def reason_of(index: TrendIndex, flow: Flow, *, site: int, step: int, rank: int, micro_step: int) -> Reason:
    """Finds out what the operands of a cell were and which of the usual reasons they point to."""
    place = {"step": step, "rank": rank, "micro_step": micro_step}
    sources = _operand_sites(index, flow, site)
    cells = cells_at(index, sources, **place)
    texts = tuple(cells[s].text for s in sources if s in cells)
    finite = bool(cells) and all(cell.state < NON_FINITE for cell in cells.values())
    clause = _no_tokens(index, site, **place) or _from_operands(list(cells.values()), index, site)
    return Reason(clause, texts, finite)


def _operand_sites(index: TrendIndex, flow: Flow, site: int) -> list[int]:
    """Gives the sources of a site; without known flow, the inputs and parameters of its node."""
    starts, sources = flow.sources
    known = sources[starts[site] : starts[site + 1]].tolist()
    if known:
        return list(dict.fromkeys(known))
    sites = index.sites
    same = sites["node"] == sites["node"][site]
    own = [s for s in np.flatnonzero(same).tolist() if s != site]
    direction = str(sites["direction"][site])
    if sites["role"][site] == Role.INPUT.value:
        return []
    feeding = _FEEDING.get(direction, ())
    if direction in (Direction.REDUCE.value, Direction.UPDATE.value):
        parameter = str(sites["argument"][site]).partition(".")[0]
        own = [s for s in own if str(sites["argument"][s]).partition(".")[0] == parameter]
    return [s for s in own if (str(sites["direction"][s]), str(sites["role"][s])) in feeding]


def _no_tokens(index: TrendIndex, site: int, *, step: int, rank: int, micro_step: int) -> str:
    """Tells whether nothing entered the node, or the expert that it belongs to, in this micro-step."""
    sites = index.sites
    path = str(sites["node"][site])
    expert = int(sites["expert"][site])
    owners = [path] if expert < 0 else [path, *_expert_paths(path, expert)]
    what = f"expert {expert} got no tokens" if expert >= 0 else "nothing entered it"
    forward_inputs = (sites["direction"] == Direction.FORWARD.value) & (sites["role"] == Role.INPUT.value)
    for owner in owners:
        inputs = np.flatnonzero(forward_inputs & (sites["node"] == owner)).tolist()
        cells = cells_at(index, inputs, step=step, rank=rank, micro_step=micro_step)
        for cell in cells.values():
            if cell.state == State.EMPTY:
                return f"{what}, its input is empty" + (f" ({cell.shape} elsewhere)" if cell.is_usually_full else "")
        if inputs and not cells and _ran_elsewhere(index, inputs, step):
            return f"{what}, it did not run in this step on this rank while it did elsewhere"
    return _zero_count(index, site, step=step, rank=rank, micro_step=micro_step) if expert >= 0 else ""


def _expert_paths(path: str, expert: int) -> list[str]:
    """Gives the containers of a node up to the expert itself."""
    words = path.split(".")
    last = max(i for i, word in enumerate(words) if word == str(expert))
    return [".".join(words[:end]) for end in range(len(words) - 1, last, -1)]


def _ran_elsewhere(index: TrendIndex, inputs: list[int], step: int) -> bool:
    files = [block.over_ranks for block in index.manifest.blocks]
    where = "site IN (SELECT unnest(?)) AND state > ?"
    rows = index.store.read(files, "count(*) AS n", where, [inputs, int(State.EMPTY)])
    return int(rows["n"][0]) > 0


def _zero_count(index: TrendIndex, site: int, *, step: int, rank: int, micro_step: int) -> str:
    """Looks for a recorded load of the experts beside this one that holds zeros."""
    sites = index.sites
    layer = str(sites["node"][site]).partition("experts")[0].rstrip(".")
    counted = [
        s
        for s in range(len(sites))
        if str(sites["argument"][s]).rpartition(".")[2] in _LOADS and str(sites["node"][s]).startswith(layer)
    ]
    cells = cells_at(index, counted, step=step, rank=rank, micro_step=micro_step)
    for cell in cells.values():
        if cell.zero:
            return f"{cell.zero:,} of {cell.elements:,} experts got no tokens ({cell.name})"
    return ""


def _from_operands(cells: list[Cell], index: TrendIndex, site: int) -> str:
    """Gives the usual reason that the operands' numbers point to."""
    text = f"{index.sites['class_name'][site]} {index.sites['node'][site]}".lower()
    for cell in cells:
        largest = FORMATS[cell.dtype].largest if cell.dtype in FORMATS else 0.0
        extreme = max(abs(cell.low), abs(cell.high)) if np.isfinite(cell.low) else 0.0
        if cell.neg_inf and cell.neg_inf == cell.elements:
            return f"all elements of {cell.name} are -Inf"
        if cell.neg_inf or cell.pos_inf:
            return f"{cell.name} holds {cell.neg_inf + cell.pos_inf:,} infinities, as in other steps"
        if largest and extreme > min(_NEAR_OVERFLOW * largest, largest**0.5 if largest > 1e30 else largest):
            return f"overflow: {cell.name} reaches {extreme:.4g}, its products are beyond {cell.dtype} ({largest:.4g})"
        if "log" in text and cell.low <= 0:
            return f"the logarithm of {cell.low:.4g}"
        if "sqrt" in text and cell.low < 0:
            return f"the square root of {cell.low:.4g}"
    for cell in cells:
        if cell.state == State.ZERO and "div" in text:
            return f"a division by {cell.name}, which is zero"
    return ""


def places(ranks: list[int]) -> str:
    """Writes ranks for a sentence; many as a number."""
    return spans(ranks, "rank") if len(ranks) <= 8 else f"{len(ranks)} ranks"
