"""Where the first NaN, or the first infinity that does harm, arose: over all steps, ranks and micro-steps.

An infinity is harmless while it reaches no NaN, gradient, parameter or loss: a mask is written with -Inf on purpose and
consumed to finite values by the softmax after it. One that also stands there in steps without harm is a habit and never
the origin; the first thing that it spoilt is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from msprobe.core.scan.bad_cells import UPDATED_STAGE, BadCells, Flow, Links, link, read_bad_cells
from msprobe.core.trend.kinds import KINDS
from msprobe.core.trend.states import NON_FINITE, State

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.trend.index import TrendIndex

#: Steps with harm that are looked at in full; a run that is lost after its first NaN needs one.
MOST_STEPS: Final = 50


@dataclass(frozen=True)
class Outbreak:
    """A step with harm. ``origins`` are rows of ``cells`` in order of flow: the first is to be looked at.

    ``lasting``: parameters were bad afterwards. ``by_order`` marks cells of which only the order is known.
    """

    step: int
    flow: Flow
    cells: BadCells
    origins: NDArray[np.int64]
    by_order: NDArray[np.bool_]
    lasting: bool


@dataclass(frozen=True)
class StepStates:
    """The (site, step) with anything non-finite on any rank, and the worst state there."""

    site: NDArray[np.int64]
    step: NDArray[np.int64]
    state: NDArray[np.uint8]


def outbreaks(index: TrendIndex, stages: dict[int, int]) -> Iterator[Outbreak]:
    """Gives the steps with harm in order, up to and with the first whose harm stayed in the parameters."""
    flow = Flow(index.sites)
    rolled = _bad_roll_ups(index, flow)
    harmful = _harmful_steps(flow, rolled)
    habits = _habits(rolled, harmful)
    for step in harmful[:MOST_STEPS].tolist():
        cells = read_bad_cells(index, step)
        cells = cells.where(~flow.derived[cells.site])
        cells = cells.where(cells.is_nan | ~habits[cells.site])
        if not len(cells):
            continue
        links = link(flow, cells, stages)
        origins = _origins(flow, cells, links, stages)
        if not len(origins):
            continue
        lasting = _stayed(index, flow, rolled, step)
        yield Outbreak(step, flow, cells, origins, links.by_order, lasting)
        if lasting:
            return


def _bad_roll_ups(index: TrendIndex, flow: Flow) -> StepStates:
    files = [block.over_ranks for block in index.manifest.blocks]
    rows = index.store.read(files, "site, step, state", "state >= ?", [int(NON_FINITE)])
    kept = ~flow.derived[rows["site"]]
    return StepStates(rows["site"][kept].astype(np.int64), rows["step"][kept], rows["state"][kept])


def _harmful_steps(flow: Flow, rolled: StepStates) -> NDArray[np.int64]:
    harm = (rolled.state >= State.NAN) | flow.harmful[rolled.site]
    return np.unique(rolled.step[harm])


def _habits(rolled: StepStates, harmful: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Marks sites that hold an infinity in steps without harm, too."""
    quiet = ~np.isin(rolled.step, harmful)
    marked = np.zeros(int(rolled.site.max(initial=-1)) + 1, bool)
    marked[rolled.site[quiet]] = True
    return marked


def _origins(flow: Flow, cells: BadCells, links: Links, stages: dict[int, int]) -> NDArray[np.int64]:
    """Gives the roots that harm came from, in order of flow across ranks."""
    guilty = links.ancestors_of(cells.is_nan | flow.harmful[cells.site])
    roots = np.flatnonzero(links.roots(len(cells)) & guilty)
    phase = flow.sites["phase"][cells.site[roots]]
    stage = np.array([stages.get(rank, 0) for rank in cells.rank[roots].tolist()], np.int64)
    keys = (cells.rank[roots], cells.order[roots], np.where(phase == 1, -stage, stage), phase, cells.micro_step[roots])
    return roots[np.lexsort(keys)]


def _stayed(index: TrendIndex, flow: Flow, rolled: StepStates, step: int) -> bool:
    """Tells whether the harm of a step was in the parameters afterwards; also so where the run ends there."""
    updated = flow.stage == UPDATED_STAGE
    if updated[rolled.site[rolled.step == step]].any():
        return True
    later = index.steps[index.steps > step]
    if not len(later):
        return True
    parameters = flow.sites["kind"] == KINDS.index("parameter")
    recorded = parameters.any()
    bad = rolled.site[rolled.step == later[0]]
    return bool(parameters[bad].any()) if recorded else bool(len(bad))


def made_here(outbreak: Outbreak) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Gives (site, rank) of the cells in which NaN arose, for the state ``NAN_MADE`` of a picture."""
    nan = outbreak.origins[outbreak.cells.is_nan[outbreak.origins]]
    return outbreak.cells.site[nan], outbreak.cells.rank[nan]
