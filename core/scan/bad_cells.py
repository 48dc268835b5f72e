"""The non-finite cells of one step on all ranks, and which of them may have passed it to which.

A link leads from a bad cell to a bad one that it was computed from: along the recorded data flow within a micro-step,
from a gradient to what the reduction, the clipping and the optimizer made of it on any rank, and where no data flow is
known, to the bad cell before it in order of execution. Time is never used: clocks of hosts differ.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from msprobe.core.sites import Direction, NodeKind, Role
from msprobe.core.trend.kinds import KINDS, SCALAR
from msprobe.core.trend.states import NON_FINITE, State

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.trend.global_sites import SiteCatalogue
    from msprobe.core.trend.index import TrendIndex

    Numbers = NDArray[np.int64]

#: Stages of a parameter within a step: the gradient of one backward, reduced, consumed, what the update left.
BACKWARD_STAGE, REDUCED_STAGE, CONSUMED_STAGE, UPDATED_STAGE = 1, 2, 3, 4
_STAGES: Final = {
    (Direction.BACKWARD.value, Role.GRADIENT.value): BACKWARD_STAGE,
    ("reduce", Role.GRADIENT.value): REDUCED_STAGE,
    (Direction.UPDATE.value, Role.GRADIENT.value): CONSUMED_STAGE,
    (Direction.UPDATE.value, Role.STATE.value): UPDATED_STAGE,
    (Direction.UPDATE.value, Role.PARAMETER.value): UPDATED_STAGE,
}


@dataclass(frozen=True)
class Flow:
    """What the sites of a run mean for the way of bad values, made once."""

    sites: SiteCatalogue

    @cached_property
    def sources(self) -> tuple[Numbers, Numbers]:
        """Source sites of each site as (start of each site's list, lists)."""
        edges = self.sites.edges
        order = np.argsort(edges[:, 1], kind="stable")
        starts = np.searchsorted(edges[order, 1], np.arange(len(self.sites) + 1))
        return starts, edges[order, 0]

    @cached_property
    def has_source(self) -> NDArray[np.bool_]:
        """Marks sites whose data flow is known."""
        starts, _ = self.sources
        return np.diff(starts) > 0

    @cached_property
    def stage(self) -> Numbers:
        """Stage of each site in the life of a parameter's gradient; 0 for others."""
        places = zip(self.sites["direction"], self.sites["role"], strict=True)
        return np.array([_STAGES.get(place, 0) for place in places], np.int64)

    @cached_property
    def parameter(self) -> Numbers:
        """Number of the parameter that a site is about (forward, gradient, state); -1 for others."""
        known: dict[tuple[str, str], int] = {}
        found = np.full(len(self.sites), -1, np.int64)
        is_parameter = (self.stage > 0) | (self.sites["kind"] == KINDS.index("parameter"))
        for site in np.flatnonzero(is_parameter).tolist():
            key = str(self.sites["node"][site]), str(self.sites["argument"][site]).partition(".")[0]
            found[site] = known.setdefault(key, len(known))
        return found

    @cached_property
    def lasting(self) -> NDArray[np.bool_]:
        """Marks parameters and buffers: recorded once in a step, they serve all its micro-steps."""
        return np.isin(self.sites["kind"], [KINDS.index("parameter"), KINDS.index("buffer")])

    @cached_property
    def derived(self) -> NDArray[np.bool_]:
        """Marks what the recorder derived: a ratio to a parameter of zeros is infinite and no fault."""
        return np.asarray(self.sites["role"] == Role.DERIVED.value)

    @cached_property
    def scalar(self) -> NDArray[np.bool_]:
        """Marks the run-wide scalars."""
        return np.asarray(self.sites["direction"] == SCALAR)

    @cached_property
    def collective(self) -> NDArray[np.bool_]:
        """Marks sites of collectives."""
        return np.asarray(self.sites["node_kind"] == NodeKind.COLLECTIVE.value)

    @cached_property
    def harmful(self) -> NDArray[np.bool_]:
        """Marks sites at which an infinity has reached gradients, parameters or the loss."""
        names = ("activation gradient in", "activation gradient out", "parameter", "scalar")
        return np.isin(self.sites["kind"], [KINDS.index(name) for name in names]) | (self.stage > 0)


@dataclass(frozen=True)
class BadCells:
    """Columns of one step's bad cells, sorted by rank and order of execution, scalars behind the others.

    ``order`` counts the rank's records in the step: when a cell was recorded, on no clock.
    """

    step: int
    site: Numbers
    rank: Numbers
    micro_step: Numbers
    order: Numbers
    state: NDArray[np.uint8]

    def __len__(self) -> int:
        return len(self.site)

    def where(self, kept: NDArray[np.bool_]) -> BadCells:
        """Gives the cells that are marked."""
        columns = {name: getattr(self, name)[kept] for name in ("site", "rank", "micro_step", "order", "state")}
        return replace(self, **columns)

    @property
    def is_nan(self) -> NDArray[np.bool_]:
        """Marks cells with NaN."""
        return self.state >= State.NAN


def read_bad_cells(index: TrendIndex, step: int) -> BadCells:
    """Reads the non-finite cells of a step."""
    files = [tile.file for block in index.blocks_of(np.array([step])) for tile in block.tiles]
    where = "step = ? AND state >= ?"
    rows = index.store.read(files, "site, rank, micro_step, seq, state", where, [step, int(NON_FINITE)])
    site, rank, micro_step, seq = (rows[name].astype(np.int64) for name in ("site", "rank", "micro_step", "seq"))
    starts = index.store.read(files, "rank, min(seq) AS first", "step = ? GROUP BY rank", [step])
    first = np.zeros(int(starts["rank"].max(initial=0)) + 1, np.int64)
    first[starts["rank"]] = starts["first"]
    order = seq - first[rank]
    by = np.lexsort((index.sites.position[site], order, rank))
    return BadCells(step, site[by], rank[by], micro_step[by], order[by], rows["state"][by])


@dataclass(frozen=True)
class Links:
    """``pairs``: (bad cell, bad cell that it was computed from). ``by_order`` marks cells linked by order alone."""

    pairs: Numbers
    by_order: NDArray[np.bool_]

    def roots(self, count: int) -> NDArray[np.bool_]:
        """Marks the cells that came from no other."""
        root = np.ones(count, bool)
        root[self.pairs[:, 0]] = False
        return root

    def ancestors_of(self, marked: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Marks all cells that marked ones came from, and these themselves."""
        found = marked.copy()
        while True:
            grown = found.copy()
            grown[self.pairs[found[self.pairs[:, 0]], 1]] = True
            if (grown == found).all():
                return found
            found = grown


def link(flow: Flow, cells: BadCells, stages: dict[int, int]) -> Links:
    """Finds the links between the bad cells of a step; ``stages`` is the place of each rank in the pipeline."""
    along = _along_edges(flow, cells)
    linked = np.zeros(len(cells), bool)
    linked[along[:, 0]] = True
    parts = [along, _parameter_links(flow, cells), _collective_links(flow, cells)]
    for part in parts[1:]:
        linked[part[:, 0]] = True
    loose = (
        ~linked & ~flow.has_source[cells.site] & (flow.stage[cells.site] <= BACKWARD_STAGE) & ~flow.lasting[cells.site]
    )
    parts.append(_order_links(flow, cells, loose))
    parts.append(_pipeline_links(flow, cells, loose, stages))
    return Links(np.concatenate(parts), loose)


def _along_edges(flow: Flow, cells: BadCells) -> Numbers:
    """Links each cell to bad cells at the sources of its site, of the same rank and micro-step."""
    starts, sources = flow.sources
    degree = (starts[1:] - starts[:-1])[cells.site]
    child = np.repeat(np.arange(len(cells)), degree)
    offset = np.arange(len(child)) - np.repeat(np.cumsum(degree) - degree, degree)
    source = sources[np.repeat(starts[:-1][cells.site], degree) + offset]
    width = len(flow.sites)
    depth = int(cells.micro_step.max(initial=0)) + 1
    # Of a parameter or buffer the first cell of the step counts, whatever its micro-step.
    own = np.where(flow.lasting[cells.site], 0, cells.micro_step)
    wanted = np.where(flow.lasting[source], 0, cells.micro_step[child])
    keys = (cells.rank * depth + own) * width + cells.site
    order = np.argsort(keys, kind="stable")
    target = (cells.rank[child] * depth + wanted) * width + source
    at = np.minimum(np.searchsorted(keys[order], target), len(keys) - 1)
    found = keys[order][at] == target if len(keys) else np.zeros(0, bool)
    pairs: Numbers = np.stack([child, order[at]], axis=1)[found]
    return np.asarray(pairs[pairs[:, 0] != pairs[:, 1]])


def _parameter_links(flow: Flow, cells: BadCells) -> Numbers:
    """Links what reduction, clipping and update made to a gradient of an earlier stage on any rank.

    The same parameter's first; where that has none, any gradient's: clipping by the global norm mixes them all.
    """
    stage, parameter = flow.stage[cells.site], flow.parameter[cells.site]
    found = []
    for at in (REDUCED_STAGE, CONSUMED_STAGE, UPDATED_STAGE):
        later = np.flatnonzero(stage == at)
        earlier = np.flatnonzero((stage > 0) & (stage < at))
        if not len(later) or not len(earlier):
            continue
        # the latest stage before, of the same parameter
        order = earlier[np.lexsort((stage[earlier], parameter[earlier]))]
        last = np.searchsorted(parameter[order], parameter[later], side="right") - 1
        same = (last >= 0) & (parameter[order][last] == parameter[later])
        found.append(np.stack([later[same], order[last[same]]], axis=1))
        if at > REDUCED_STAGE:
            others = later[~same]
            found.append(np.stack([others, np.full(len(others), earlier[np.argmin(stage[earlier])])], axis=1))
    return np.concatenate(found) if found else np.zeros((0, 2), np.int64)


def _collective_links(flow: Flow, cells: BadCells) -> Numbers:
    """Links a collective's outputs to its bad inputs on any rank."""
    is_collective = flow.collective[cells.site]
    if not is_collective.any():
        return np.zeros((0, 2), np.int64)
    names = {path: i for i, path in enumerate(dict.fromkeys(flow.sites["node"]))}
    node = np.array([names[path] for path in flow.sites["node"][cells.site]])
    output = is_collective & (flow.sites["role"][cells.site] == Role.OUTPUT.value)
    inputs = {int(node[i]): i for i in np.flatnonzero(is_collective & ~output)[::-1].tolist()}
    pairs = [(i, inputs[int(node[i])]) for i in np.flatnonzero(output).tolist() if int(node[i]) in inputs]
    return np.array(pairs, np.int64).reshape(-1, 2)


def _order_links(flow: Flow, cells: BadCells, loose: NDArray[np.bool_]) -> Numbers:
    """Links cells without known data flow to the bad cell before them on their rank.

    A scalar is a result of the whole step, on whatever rank: it is linked to the first bad tensor of the step.
    """
    scalar = flow.scalar[cells.site]
    which = np.flatnonzero(loose & ~scalar)
    which = which[which > 0]
    which = which[cells.rank[which] == cells.rank[which - 1]]
    pairs = [np.stack([which, which - 1], axis=1)]
    tensors, scalars = np.flatnonzero(~scalar)[:1], np.flatnonzero(scalar)
    if len(tensors):
        pairs.append(np.stack([scalars, np.full(len(scalars), tensors[0])], axis=1))
    return np.concatenate(pairs)


def _pipeline_links(flow: Flow, cells: BadCells, loose: NDArray[np.bool_], stages: dict[int, int]) -> Numbers:
    """Links what a stage of a pipeline was sent to bad cells of the stage before (in backward: behind) it."""
    if len(set(stages.values())) < 2:
        return np.zeros((0, 2), np.int64)
    stage = np.array([stages[rank] for rank in cells.rank.tolist()], np.int64)
    found = []
    for direction, sign in ((Direction.FORWARD.value, 1), (Direction.BACKWARD.value, -1)):
        here = flow.sites["direction"][cells.site] == direction
        for child in np.flatnonzero(here & loose).tolist():
            before = np.flatnonzero(here & (sign * stage < sign * stage[child]))
            if len(before):
                found.append((child, int(before[0])))
    return np.array(found, np.int64).reshape(-1, 2)
