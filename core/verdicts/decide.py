"""Give every pair its verdict: first hit of the order in docs/concepts.md.

A row is *flagged* when it differs by more than its bound. Flags are local: each is decided from the row and its
sources alone. Then *taint* flows: from flagged rows along the data flow, until a row whose difference is no more than
a fresh computation may show (it has healed). A flagged row without tainted sources is introduced; one with them is
suspect; an unflagged row with tainted sources is inherited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.comparison import Verdict
from msprobe.core.sites import Direction, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.verdicts.bounds import Bounds
    from msprobe.core.verdicts.constants import Constants
    from msprobe.core.verdicts.errors import Errors
    from msprobe.core.verdicts.flow import Edges, Flow
    from msprobe.core.verdicts.table import PairTable


@dataclass
class Decisions:
    """Per row: the verdict and why, and the difference it was held to; ``flagged`` and ``tainted`` for the story."""

    verdict: NDArray[np.object_]
    reason: NDArray[np.object_]
    flagged: NDArray[np.bool_]
    tainted: NDArray[np.bool_]
    held_to: NDArray[np.float64]


def decide(table: PairTable, errors: Errors, bounds: Bounds, flow: Flow, constants: Constants) -> Decisions:
    """Decides all rows."""
    known = (~np.isnan(errors.difference) | errors.nonfinite) & ~np.isnan(bounds.total)
    judgeable = table.matched & (known | errors.equal)
    edges = np.concatenate([flow.edges, flow.across_steps])
    with np.errstate(invalid="ignore"):
        differs = judgeable & ~errors.equal & (errors.nonfinite | (errors.difference > 0))
        beyond = errors.nonfinite | (errors.difference > bounds.total)
        flagged = differs & beyond & ~_has_poisoned_source(errors, edges, len(table))
        healed = judgeable & ~errors.nonfinite & (errors.difference <= bounds.local)
    flips = _undecidable_flips(table, differs, judgeable, edges)
    blind = _without_judged_source(table, judgeable, edges) | _of_optimizer(table, flow) | _late(flow)
    blind = (blind | _changed_unseen(table, flow) | _of_another_size(table, judgeable, edges)) & flagged
    flagged &= ~blind & ~flips
    tainted = spread_taint(flagged | flips, healed & ~flagged, edges, len(table))
    with np.errstate(invalid="ignore"):
        carried = np.fmax(bounds.total, bounds.derived) - bounds.local
        held_to = np.where(tainted, bounds.local + constants.fault_gain * carried, bounds.total)
        explained = errors.difference <= held_to
    flagged &= ~(tainted & explained & ~errors.nonfinite)
    passed_on = _from_other_ranks(flagged | flips, healed & ~flagged, edges, flow, len(table)) & ~tainted & flagged
    flagged &= ~passed_on
    clouded = spread_taint(blind, healed, edges, len(table)) & differs & ~(healed | tainted | flagged)
    blank = np.full(len(table), "", dtype=object)
    decisions = Decisions(blank, blank.copy(), flagged, tainted, held_to)
    _fill(decisions, table, errors, _Masks(judgeable, blind | clouded, flips, healed, passed_on))
    return decisions


def _has_poisoned_source(errors: Errors, edges: Edges, count: int) -> NDArray[np.bool_]:
    """Finds rows with a source whose NaN or Inf stand elsewhere than on the other side: they explain any result."""
    poisoned = np.zeros(count, dtype=bool)
    if len(edges):
        poisoned[edges[errors.nonfinite[edges[:, 0]], 1]] = True
    return poisoned


def _undecidable_flips(
    table: PairTable, differs: NDArray[np.bool_], judgeable: NDArray[np.bool_], edges: Edges
) -> NDArray[np.bool_]:
    """Finds discrete results (token ids, choices of experts) that flipped while their sources differ too."""
    discrete = table.candidate.discrete & table.reference.discrete & differs & table.is_role(Role.OUTPUT, Role.INPUT)
    if not discrete.any() or not len(edges):
        return np.zeros(len(table), dtype=bool)
    unequal = np.zeros(len(table), dtype=bool)
    unequal[edges[differs[edges[:, 0]], 1]] = True
    return discrete & unequal & judgeable


def _changed_unseen(table: PairTable, flow: Flow) -> NDArray[np.bool_]:
    """Finds parameters and buffers of later steps of which no record tells what changed them."""
    lasting = table.is_role(Role.PARAMETER, Role.BUFFER)
    unseen = lasting & ~flow.first_of_site
    causes, targets = flow.across_steps.T
    unseen[targets[~lasting[causes]]] = False
    return unseen


def _late(flow: Flow) -> NDArray[np.bool_]:
    """Finds rows whose sources are only supposed, in a run whose data flow was traced: they came after the trace.

    In a run without any trace the supposed order is all there is, and is used.
    """
    return flow.by_order if flow.traced else np.zeros_like(flow.by_order)


def _of_optimizer(table: PairTable, flow: Flow) -> NDArray[np.bool_]:
    """Finds operands of the optimizer's operators: state and gradients, whose data flow is not followed."""
    operator = table.sites.is_op[table.site]
    return operator & flow.external & table.is_direction(Direction.UPDATE)


def _without_judged_source(table: PairTable, judgeable: NDArray[np.bool_], edges: Edges) -> NDArray[np.bool_]:
    """Finds rows that have sources, none of which could be judged.

    A parameter or buffer counts where there is no other source: that a norm's weight agrees says nothing of what passed
    through the norm.
    """
    lasting = table.is_role(Role.PARAMETER, Role.BUFFER)
    known = np.zeros((2, len(table)), dtype=bool)
    judged = np.zeros((2, len(table)), dtype=bool)
    if len(edges):
        source, target = edges.T
        passing = np.where(lasting[source] & ~lasting[target], 0, 1)
        known[passing, target] = True
        judged[passing[judgeable[source]], target[judgeable[source]]] = True
    unjudged: NDArray[np.bool_] = np.where(known[1], ~judged[1], known[0] & ~judged[0])
    return unjudged


def _of_another_size(table: PairTable, judgeable: NDArray[np.bool_], edges: Edges) -> NDArray[np.bool_]:
    """Finds rows computed from an activation of another number of elements than on the other side, as of another batch.

    That source cannot be judged, and certainly is not the same; the sources beside it do not make up for it.
    """
    odd = table.matched & ~judgeable & table.is_role(Role.INPUT, Role.OUTPUT)
    odd &= table.candidate.elements != table.reference.elements
    found = np.zeros(len(table), dtype=bool)
    if len(edges):
        found[edges[odd[edges[:, 0]], 1]] = True
    return found


def spread_taint(seeds: NDArray[np.bool_], healed: NDArray[np.bool_], edges: Edges, count: int) -> NDArray[np.bool_]:
    """Gives the rows with a seed among their ancestors, not counting paths through healed rows."""
    tainted = np.zeros(count, dtype=bool)
    if not seeds.any() or not len(edges):
        return tainted
    order = np.argsort(edges[:, 0], kind="stable")
    targets = edges[order, 1]
    starts = np.searchsorted(edges[order, 0], np.arange(count + 1))
    frontier = np.flatnonzero(seeds)
    visited = seeds.copy()
    while len(frontier):
        lengths = starts[frontier + 1] - starts[frontier]
        index = np.repeat(starts[frontier] - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths) + np.arange(
            lengths.sum()
        )
        reached = np.unique(targets[index])
        tainted[reached] = True
        frontier = reached[~visited[reached] & ~healed[reached]]
        visited[reached] = True
    return tainted


def _from_other_ranks(
    seeds: NDArray[np.bool_], healed: NDArray[np.bool_], edges: Edges, flow: Flow, count: int
) -> NDArray[np.bool_]:
    """Gives the rows that a seed reaches, on this rank or through what ranks pass to each other."""
    if not flow.hubs or not seeds.any():
        return np.zeros(count, dtype=bool)
    more = np.zeros(flow.hubs, dtype=bool)
    everything = np.concatenate([edges, flow.shared])
    reached = spread_taint(np.append(seeds, more), np.append(healed, more), everything, count + flow.hubs)
    return reached[:count]


@dataclass(frozen=True)
class _Masks:
    """What else decides: rows that can be judged, whose sources cannot, that flipped, healed, or others spoiled."""

    judgeable: NDArray[np.bool_]
    blind: NDArray[np.bool_]
    flips: NDArray[np.bool_]
    healed: NDArray[np.bool_]
    passed_on: NDArray[np.bool_]


def _fill(decisions: Decisions, table: PairTable, errors: Errors, masks: _Masks) -> None:
    flagged, tainted = decisions.flagged, decisions.tainted
    c, r = table.candidate.present, table.reference.present
    unjudged = np.where(errors.reason != "", errors.reason, "what rounding explains is unknown here")
    healthy = ~(flagged | tainted)
    rules = [
        (c & ~r, Verdict.UNMATCHED, "only in the candidate"),
        (r & ~c, Verdict.UNMATCHED, "only in the reference"),
        (~masks.judgeable, Verdict.INCONCLUSIVE, unjudged),
        (
            masks.blind,
            Verdict.INCONCLUSIVE,
            "it differs, and what it was computed from is unknown or could not be judged",
        ),
        (masks.flips, Verdict.INCONCLUSIVE, "a choice flipped where its inputs differ; by what margin is unknown"),
        (errors.equal, Verdict.EQUAL, "same bits"),
        (
            masks.passed_on,
            Verdict.INHERITED,
            "its sources agree on this rank, but differ on a rank that has a part in it",
        ),
        (healthy & errors.identical, Verdict.NORMAL, "no recorded number differs"),
        (healthy, Verdict.NORMAL, "the difference is within rounding"),
        (
            flagged & errors.nonfinite & ~tainted,
            Verdict.INTRODUCED,
            "NaN or Inf on one side only, from sources that agree",
        ),
        (
            flagged & ~tainted,
            Verdict.INTRODUCED,
            "it differs by more than rounding explains, and what it was computed from agrees",
        ),
        (flagged & errors.nonfinite, Verdict.SUSPECT, "NaN or Inf on one side only; its sources differ too"),
        (flagged, Verdict.SUSPECT, "it differs by more than its differing sources explain"),
        (tainted & errors.identical, Verdict.NORMAL, "no recorded number differs, though its sources do"),
        (masks.healed, Verdict.NORMAL, "the difference is within rounding, though its sources differ"),
        (tainted, Verdict.INHERITED, "its sources differ, and explain this difference"),
    ]
    open_ = np.ones(len(table), dtype=bool)
    for condition, verdict, reason in rules:
        hit = open_ & condition
        decisions.verdict[hit] = verdict.value
        decisions.reason[hit] = reason[hit] if isinstance(reason, np.ndarray) else reason
        open_ &= ~hit
    assert not open_.any()
