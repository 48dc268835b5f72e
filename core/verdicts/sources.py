"""From introduced rows to independent sources: who is to blame, and what speaks for it.

One source stands for all introduced rows of one node in one direction: a bug shows again at every step and on every
rank.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.comparison import Source, Verdict
from msprobe.core.matching.names import split_operator
from msprobe.core.sites import Direction, Role
from msprobe.core.verdicts.evidence import EvidenceFinder
from msprobe.core.verdicts.ranks import RanksToBlame
from msprobe.core.verdicts.table import DIRECTIONS, ROLES, PairTable, row_order

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.verdicts.bounds import Bounds
    from msprobe.core.verdicts.constants import Constants
    from msprobe.core.verdicts.decide import Decisions
    from msprobe.core.verdicts.errors import Errors
    from msprobe.core.verdicts.flow import Flow


@dataclass(frozen=True)
class Judged:
    """Everything known of the rows once they are decided."""

    table: PairTable
    errors: Errors
    relative: NDArray[np.float64]
    bounds: Bounds
    flow: Flow
    decisions: Decisions
    constants: Constants


@dataclass(frozen=True, slots=True)
class _Blame:
    """Whom a site points to: a node, whether its own code between its modules, and what kind of place it is."""

    node: str
    node_class: str
    own_code: bool
    place: str
    side_of_pass: str


def find_sources(judged: Judged) -> tuple[Source, ...]:
    """Gives the independent sources in order of execution."""
    table = judged.table
    rows = np.flatnonzero(judged.decisions.verdict == Verdict.INTRODUCED.value)
    if not len(rows):
        return ()
    rows = rows[_order_of_cause(table)[rows].argsort(kind="stable")]
    groups: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    classes = _classes(table)
    containers = _containers(table)
    blames = {site: _blame(table, site, classes, containers) for site in np.unique(table.site[rows]).tolist()}
    updated = frozenset(np.unique(judged.flow.across_steps[:, 1]).tolist())
    from_loss = _from_loss(judged)
    for row in rows.tolist():
        blame = blames[int(table.site[row])]
        if row in from_loss and blame.place == "result":
            blame = blames[int(table.site[row])] = replace(blame, node="", own_code=False, place="loss")
        groups[(blame.node, blame.side_of_pass, blame.place)].append(row)
    cause = _order_of_cause(table)
    _join_updates(groups, updated, cause)
    _join_accumulation(groups)
    finder = EvidenceFinder(judged.table, judged.errors, judged.flow, judged.constants)
    place = np.argsort(row_order(table))
    blamed = RanksToBlame(table)
    return tuple(
        _on_ranks(_source(judged, rows, blames[int(table.site[rows[0]])], finder, int(place[rows[0]])), rows, blamed)
        for rows in sorted(groups.values(), key=lambda rows: int(cause[rows[0]]))
    )


def _order_of_cause(table: PairTable) -> NDArray[np.int64]:
    """Ranks the rows by when they may cause others, over all ranks: by step, parameters first, updates last."""
    keys = (
        table.rank,
        table.order,
        table.is_direction(Direction.BACKWARD),
        table.micro_step,
        table.is_direction(Direction.UPDATE),
        ~table.is_role(Role.PARAMETER, Role.BUFFER),
        table.step,
    )
    place = np.empty(len(table), dtype=np.int64)
    place[np.lexsort(keys)] = np.arange(len(table))
    return place


def _blame(table: PairTable, site: int, classes: dict[str, str], containers: dict[str, str | None]) -> _Blame:
    facts = table.sites
    node = str(facts.candidate_node[site] or facts.reference_node[site])
    direction, role = DIRECTIONS[int(facts.direction[site])], ROLES[int(facts.role[site])]
    passes = Direction.FORWARD.value if direction == Direction.RECOMPUTE.value else direction

    def blame(place: str, *, at: str = node, own_code: bool = False) -> _Blame:
        return _Blame(at, classes.get(at, ""), own_code, place, passes)

    if role in (Role.PARAMETER.value, Role.BUFFER.value):
        return blame(role)
    if role == Role.GRADIENT.value and direction == Direction.UPDATE.value:
        return blame("accumulation")
    if role != Role.INPUT.value:
        leaf = bool(facts.is_leaf[site] or facts.is_op[site])
        return blame("result", own_code=role == Role.OUTPUT.value and not leaf)
    parent = containers.get(node)
    if facts.is_op[site] and parent is None:
        return blame("operand")
    if parent is None:
        return blame("loss" if direction == Direction.BACKWARD.value else "model input")
    return blame("result", at=str(parent), own_code=True)


def _containers(table: PairTable) -> dict[str, str | None]:
    """Gives, for each node, the innermost container that runs code of its own (lists of modules do not), or None."""
    paths = np.concatenate([table.sites.candidate_node, table.sites.reference_node])
    running = {split_operator(path)[0] for path in paths.tolist()} | {""}
    parents = {
        node.path: node.parent for match in table.matches for node in (*match.reference.nodes, *match.candidate.nodes)
    }

    def container(path: str) -> str | None:
        parent = parents.get(path)
        while parent is not None and parent not in running:
            parent = parents.get(parent)
        return parent

    return {path: container(path) for path in parents}


def _classes(table: PairTable) -> dict[str, str]:
    """Gives the class of each node by path; the candidate's where both sides have one."""
    found: dict[str, str] = {}
    for match in table.matches:
        for node in (*match.candidate.nodes, *match.reference.nodes):
            found.setdefault(node.path, node.class_name)
    return found


def _from_loss(judged: Judged) -> frozenset[int]:
    """Finds gradients that were computed from forward values only: the first that the loss sends into the model."""
    table = judged.table
    backward = table.is_direction(Direction.BACKWARD)
    arriving = backward & table.is_role(Role.INPUT) & ~table.sites.is_op[table.site]
    edges = judged.flow.edges
    arriving[edges[backward[edges[:, 0]], 1]] = False
    return frozenset(np.flatnonzero(arriving & ~judged.flow.by_order).tolist())


def _join_accumulation(groups: dict[tuple[str, str, str], list[int]]) -> None:
    """Joins wrong accumulated gradients of several nodes: they have one cause, outside of the model."""
    keys = [key for key in groups if key[2] == "accumulation"]
    for key in keys[1:]:
        groups[keys[0]].extend(groups.pop(key))


def _join_updates(
    groups: dict[tuple[str, str, str], list[int]], updated: frozenset[int], cause: NDArray[np.int64]
) -> None:
    """Joins parameters that an update made wrong, from gradients that agree: the optimizer is their one cause."""
    found: list[int] = []
    for key in [key for key in groups if key[2] == Role.PARAMETER.value]:
        wrong = [row for row in groups[key] if row in updated]
        found += wrong
        if len(wrong) == len(groups[key]):
            del groups[key]
        elif wrong:
            groups[key] = [row for row in groups[key] if row not in updated]
    if found:
        groups[("", Direction.UPDATE.value, "update")] = sorted(found, key=lambda row: int(cause[row]))


def _on_ranks(source: Source, rows: list[int], blamed: RanksToBlame) -> Source:
    """Says on which ranks a source sits, where it is not all of them."""
    ranks = blamed.ranks(rows, source.bound)
    if not ranks:
        return source
    sentence = f"{source.sentence.removesuffix('.')},{blamed.words(ranks)}."
    return replace(source, sentence=sentence, rank=ranks[0], ranks=ranks)


def _source(judged: Judged, rows: list[int], blame: _Blame, finder: EvidenceFinder, shown_row: int) -> Source:
    table, facts = judged.table, judged.table.sites
    first = rows[0]
    site = int(table.site[first])
    nodes = {str(facts.candidate_node[table.site[row]]) for row in rows}
    if first in judged.flow.across_steps[:, 1] and blame.place == Role.PARAMETER.value:
        blame = replace(blame, place="update")
    joined = blame.place in ("accumulation", "update") and len(nodes) > 1
    error, bound = float(judged.relative[first]), _relative_bound(judged, first)
    return Source(
        node="" if joined else blame.node,
        node_class="" if joined else blame.node_class,
        site=describe_site(table, first),
        direction=DIRECTIONS[int(facts.direction[site])],
        role=ROLES[int(facts.role[site])],
        argument=str(facts.argument[site]),
        own_code=blame.own_code,
        rank=int(table.rank[first]),
        step=int(table.step[first]),
        micro_step=int(table.micro_step[first]),
        error=error,
        error_eps=in_epsilons(judged, first),
        bound=bound,
        verdict=Verdict.INTRODUCED.value,
        sentence=_sentence(table, first, blame, len(nodes)),
        evidence=finder.evidence(rows, blame.node, error=error, bound=bound),
        occurrences=len(rows),
        ranks=tuple(sorted({int(table.rank[row]) for row in rows})),
        steps=tuple(sorted({int(table.step[row]) for row in rows})),
        row=shown_row,
    )


def describe_site(table: PairTable, row: int) -> str:
    """Words where a tensor was seen: ``forward output 0 of model.layers.3.mlp``."""
    facts, site = table.sites, int(table.site[row])
    node = str(facts.candidate_node[site] or facts.reference_node[site]) or "the model"
    call = int(max(facts.candidate_call[site], facts.reference_call[site]))
    direction, role = DIRECTIONS[int(facts.direction[site])], ROLES[int(facts.role[site])]
    again = f", call {call}" if call > 0 else ""
    return f"{direction} {role} {facts.argument[site]} of {node}{again}"


def in_epsilons(judged: Judged, row: int) -> float:
    """Gives the error of a row in units of the roundoff of the coarser format; NaN for exact formats."""
    roundoff = max(float(judged.table.candidate.roundoff[row]), float(judged.table.reference.roundoff[row]))
    return float(judged.relative[row]) / roundoff if roundoff else float("nan")


def _relative_bound(judged: Judged, row: int) -> float:
    norm = float(judged.table.norm[row])
    return float(judged.bounds.total[row]) / norm if norm > 0 else float("nan")


def _sentence(table: PairTable, row: int, blame: _Blame, nodes: int) -> str:
    step = int(table.step[row])
    name = f"{blame.node or 'the model'} ({blame.node_class})" if blame.node_class else blame.node or "the model"
    argument = table.sites.argument[table.site[row]]
    backward = DIRECTIONS[int(table.sites.direction[table.site[row]])] == Direction.BACKWARD.value
    going = " in backward" if backward else ""
    if blame.place == Role.PARAMETER.value:
        return f"Parameter {argument} of {name} differs at step {step}, before anything was computed from it."
    if blame.place == "update":
        what = f"the parameters of {nodes} modules" if nodes > 1 else f"parameter {argument} of {name}"
        return f"The optimizer updates {what} otherwise, as step {step} shows; the gradients that it consumed agree."
    if blame.place == Role.BUFFER.value:
        return f"Buffer {argument} of {name} differs at step {step}, before anything was computed from it."
    if blame.place == "accumulation":
        what = f"the gradients of {nodes} modules were" if nodes > 1 else f"the gradient of {name} was"
        return (
            f"Between backward and the optimizer's step {what} changed at step {step} (clipping, scaling, reduction, "
            "zero_grad): the gradients of the passes agree, what the optimizer consumes does not."
        )
    if blame.place == "operand":
        return f"Operand {argument} of {name} differs{going} at step {step}; it comes from outside of the model."
    if blame.place == "model input":
        return f"The model's input {argument} differs at step {step}."
    if blame.place == "loss":
        return (
            f"The gradient that the loss sends into the model differs at step {step}, while the model's outputs agree."
        )
    if blame.own_code:
        return f"The own code of {name} computes something else{going} at step {step}: the modules around it agree."
    return f"{name} computes something else{going} from agreeing inputs at step {step}."
