"""Pair two ranks: find which node is which, and see several nodes that are one on the other side as one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.errors import MappingError
from msprobe.core.matching.aligning import align_by_shapes
from msprobe.core.matching.combined import CombinedRun, NodeGroup
from msprobe.core.matching.containers import pair_containers
from msprobe.core.matching.content import parameter_content
from msprobe.core.matching.nodes import Matcher, NodePairs
from msprobe.core.matching.parameters import parameters_of
from msprobe.core.matching.ready import READY, choose, named
from msprobe.core.matching.recognising import find_order, recognise
from msprobe.core.matching.ruling import apply_rules, join_operators
from msprobe.core.matching.transforms import INTERLEAVE

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from msprobe.core.matching.mapping import Mapping
    from msprobe.core.matching.parameters import Parameters
    from msprobe.core.matching.views import RankView
    from msprobe.core.sites import Node


@dataclass(frozen=True)
class PairedRanks:
    """Both sides of a rank, with groups of nodes seen as one, and the pairs of their nodes."""

    candidate: RankView
    reference: RankView
    nodes: NodePairs


def find_pairs(candidate: RankView, reference: RankView, mapping: Mapping | None) -> NodePairs:
    """Pairs the nodes of two ranks.

    In order: the mapping; equal names; names without wrapper segments; equal parameters, also fused, transposed or
    interleaved ones; the best of the ready mappings; shapes of parameters and order of execution; containers by what
    they hold; names, then class and order inside paired parents. Equal names go before equal content: weights that
    were loaded into the wrong layer are a fault to be found, not a renaming to be followed. A mapping that is not
    ``automatic`` leaves it at its rules and names.

    Raises:
        MappingError: A rule of the mapping does not fit the runs.
    """
    matcher = Matcher(candidate.nodes, reference.nodes)
    if mapping is not None:
        apply_rules(matcher, named(mapping, candidate.nodes, reference.nodes) if mapping.is_ready else mapping)
    if mapping is not None and not mapping.automatic:
        matcher.by_names()
        matcher.operators_of_paired_modules()
        join_operators(matcher)
        return matcher.pairs
    sides = (candidate, reference)
    parameters = (parameters_of(candidate), parameters_of(reference))
    matcher.by_names(_Doubt(matcher, parameters).of)
    if matcher.free_candidates() and matcher.free_references():
        matcher.by_content(*(parameter_content(own) for own in parameters))
        recognise(matcher, sides, parameters)
        pair_containers(matcher)
        matcher.by_relative_names()
        ready = choose(mapping.ready, matcher) if mapping is not None else None
        if ready is not None:
            apply_rules(matcher, ready)
        align_by_shapes(matcher, sides, parameters)
    _by_structure(matcher)
    return matcher.pairs


def match_nodes(
    candidate: Sequence[Node],
    reference: Sequence[Node],
    *,
    mapping: Mapping | None = None,
    contents: tuple[dict[int, Hashable], dict[int, Hashable]] | None = None,
) -> NodePairs:
    """Pairs the nodes of two graphs without their records; ``contents`` are keys of what modules' parameters hold."""
    matcher = Matcher(candidate, reference)
    if mapping is not None:
        apply_rules(matcher, mapping)
    matcher.by_names()
    if contents is not None:
        matcher.by_content(*contents)
    _by_structure(matcher)
    return matcher.pairs


class _Doubt:
    """Tells which modules of one name may be two things: a fused layer and a container, or layers of other sizes."""

    def __init__(self, matcher: Matcher, parameters: tuple[Parameters, Parameters]) -> None:
        self._children = matcher.children
        self._sizes = [{n: {p.argument: p.size for p in own} for n, own in side.items()} for side in parameters]

    def of(self, candidate: int, reference: int) -> bool:
        """Tells whether the pair should wait for better evidence."""
        x, y = self._sizes[0].get(candidate, {}), self._sizes[1].get(reference, {})
        if not x or not y:
            one_is_container = bool(self._children[0].get(candidate)) != bool(self._children[1].get(reference))
            return bool(x or y) and one_is_container
        return any(x[name] != y[name] for name in x.keys() & y.keys())


def _by_structure(matcher: Matcher) -> None:
    matcher.by_names()
    pair_containers(matcher)
    matcher.by_relative_names()
    matcher.by_structure()
    matcher.by_unique_class()
    matcher.operators_of_paired_modules()
    join_operators(matcher)


def combine(candidate: RankView, reference: RankView, pairs: NodePairs) -> PairedRanks:
    """Sees the groups of a pairing as nodes of their own, which come after the others.

    Raises:
        MappingError: The transform of a rule does not fit the shapes.
    """
    if not pairs.groups:
        return PairedRanks(candidate, reference, pairs)
    sides = (candidate, reference)
    counted = [known for group in pairs.groups if (known := _with_counts(group, sides)) is not None]
    groups = [_with_order(group, sides) if group.transform.reorders else group for group in counted]
    views: list[RankView] = []
    for side, run in enumerate(sides):
        own = [group for group in groups if group.side == side]
        view = CombinedRun(run, own, sides[1 - side]) if own else run
        _refuse_misfits(view, run)
        views.append(view)
    return PairedRanks(views[0], views[1], _extended(pairs, groups, len(candidate.nodes), len(reference.nodes)))


def _extended(pairs: NodePairs, groups: Sequence[NodeGroup], count_c: int, count_r: int) -> NodePairs:
    """Gives the pairs with one node more for each group; members are no nodes of their own any more."""
    of_candidate = [group for group in groups if group.side == 0]
    partner = np.concatenate([pairs.partner, np.array([g.whole for g in of_candidate], dtype=np.int64)])
    reasons = {**pairs.reasons, **{count_c + i: group.reason for i, group in enumerate(of_candidate)}}
    for i, group in enumerate(group for group in groups if group.side == 1):
        partner[group.whole] = count_r + i
        reasons[group.whole] = group.reason
    members: tuple[set[int], set[int]] = (set(), set())
    for group in groups:
        members[group.side].update(group.parts)
    return NodePairs(
        partner, reasons, pairs.ignored_candidate | members[0], pairs.ignored_reference | members[1], list(groups)
    )


def _refuse_misfits(view: RankView, run: RankView) -> None:
    if not isinstance(view, CombinedRun):
        return
    for misfit in view.misfits:
        group = view.groups[misfit.group]
        if group.where:
            names = ", ".join(run.nodes[part].path for part in group.parts)
            shapes = ", ".join("x".join(map(str, shape)) for shape in misfit.shapes)
            whole = "x".join(map(str, misfit.whole))
            raise MappingError(
                f"{group.where}: {group.transform.describe()} of {names} makes no {whole}: the {misfit.place} of the "
                f"parts are {shapes}. Check which nodes are named, 'groups', and whether 'transpose' is missing."
            )


def _with_counts(group: NodeGroup, sides: tuple[RankView, RankView]) -> NodeGroup | None:
    """Fills in a number of groups that is given by the name of a recorded scalar; None: a ready mapping finds none."""
    name = group.transform.groups
    if group.transform.join != INTERLEAVE or isinstance(name, int):
        return group
    places = [(sides[1 - group.side], group.whole), *((sides[group.side], part) for part in group.parts)]
    for run, node in places:
        value = _scalar(run, node, name)
        if value is not None:
            reason = replace(group.reason, text=group.reason.text.replace(f"{name} groups", f"{value} groups"))
            return replace(group, transform=group.transform.with_groups(value), reason=reason)
    if group.where.startswith(READY):
        return None
    path = sides[1 - group.side].nodes[group.whole].path
    raise MappingError(
        f"{group.where}: neither run has recorded a scalar {name!r} of {path!r} or of what it lies in; "
        "write the number of groups."
    )


def _with_order(group: NodeGroup, sides: tuple[RankView, RankView]) -> NodeGroup:
    """Fills in the order of rows, found by the content of the first parameter that tells it."""
    parts, whole = sides[group.side], sides[1 - group.side]
    known = parameters_of(parts)
    of_parts = [{p.argument: p.row for p in known.get(part, ())} for part in group.parts]
    for parameter in sorted(parameters_of(whole).get(group.whole, ()), key=lambda p: -len(p.shape)):
        rows = [own.get(parameter.argument) for own in of_parts]
        if parameter.tells and None not in rows:
            vectors = [parts.content_vectors(row) for row in rows if row is not None]
            order = find_order(whole.content_vectors(parameter.row), vectors)
            if order:
                return replace(group, transform=replace(group.transform, order=order))
    if group.where:
        path = whole.nodes[group.whole].path
        raise MappingError(f"{group.where}: the rows of {path!r} are not those of its parts in any order.")
    return group


def _scalar(run: RankView, node: int, name: str) -> int | None:
    """Finds a whole number among the scalars of a node or of a container around it."""
    by_path = {n.path: i for i, n in enumerate(run.nodes)}
    values = {fact.node: fact.value for fact in run.facts if fact.kind == "scalar" and fact.name == name}
    path: str | None = run.nodes[node].path
    while path is not None:
        value = values.get(by_path.get(path, -2))
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        path = run.nodes[by_path[path]].parent if path in by_path else None
    return None
