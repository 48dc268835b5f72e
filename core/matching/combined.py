"""One rank of a run in which several nodes are seen as one, so that it pairs with a fused node of the other side.

Outputs, parameters and gradients of the parts are joined as the rule says; what enters the parts is the same tensor and
is taken once. Tensors are joined when they are read; statistics by their exact moments. A sketch and a positional
checksum are keyed by the index in the recorded tensor: of the joined one they are not known, and absent. The content
sum adds, and row and column sums show the order of parameters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.combining import Groups, add_checksums, add_sketches, combine_statistics
from msprobe.core.grouping import group_numbers
from msprobe.core.matching.rows import occurrences
from msprobe.core.matching.transforms import Plan, Transform, make_plan
from msprobe.core.records import HAS, STATISTICS, Status, filler, record_columns
from msprobe.core.run.catalogue import SiteTable
from msprobe.core.sites import Direction, Form, Node, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.matching.reasons import Reason
    from msprobe.core.matching.views import RankView

_FORWARD, _RECOMPUTE, _BACKWARD = (
    tuple(Direction).index(d) for d in (Direction.FORWARD, Direction.RECOMPUTE, Direction.BACKWARD)
)
_INPUT, _OUTPUT = (tuple(Role).index(r) for r in (Role.INPUT, Role.OUTPUT))
_LASTING = frozenset(tuple(Role).index(r) for r in Role) - {
    tuple(Role).index(r) for r in (Role.INPUT, Role.OUTPUT, Role.SAVED)
}
_SHAPED = ("sketch", "checksum", "content_sum", "tensor")

#: (direction, role, argument, call) of a site: what it is to its node.
Place = tuple[int, int, str, int]


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that together are one node of the other side (``whole``), and how their tensors become one.

    ``side`` is that of the parts: 0 the candidate's, 1 the reference's.
    """

    side: int
    parts: tuple[int, ...]
    whole: int
    transform: Transform
    reason: Reason
    #: File and line of the rule; "" when it was proposed.
    where: str = ""


@dataclass(frozen=True, slots=True)
class Misfit:
    """Tensors that the transform of a group cannot make into that of the whole."""

    group: int
    place: str
    lasting: bool
    shapes: tuple[tuple[int, ...], ...]
    whole: tuple[int, ...]


class CombinedRun:
    """A view of one rank with groups of nodes as one node each, which come after the run's own. Read like a rank."""

    def __init__(self, run: RankView, groups: Sequence[NodeGroup], other: RankView) -> None:
        self._run = run
        self.groups = tuple(groups)
        self.facts, self.events = run.facts, run.events
        self.nodes: tuple[Node, ...] = (*run.nodes, *(joined_node(run.nodes, group) for group in groups))
        self.misfits: list[Misfit] = []
        #: Why a record has no numbers, by its row.
        self.reasons: dict[int, str] = {}
        sites = _CombinedSites(run, groups, other)
        self.sites = sites.table([node.path for node in self.nodes])
        self.edges = sites.renumbered[run.edges] if len(run.edges) else run.edges
        self._sites = sites
        self._join_records()

    def _join_records(self) -> None:
        own, sites = self._run.records, self._sites
        site = own["site"].astype(np.int64)
        new = sites.renumbered[site] if len(site) else site
        parts = np.flatnonzero(new >= len(self._run.sites))
        kept = np.flatnonzero(new < len(self._run.sites))
        parts = parts[np.argsort(sites.part[site[parts]], kind="stable")]
        columns = (new[parts], own["step"][parts].astype(np.int64), own["micro_step"][parts].astype(np.int64))
        nth = occurrences(group_numbers(site[parts], *columns[1:]))
        groups = Groups.of(group_numbers(*columns, nth), parts)
        self._kept, self._groups = kept, groups
        made = self._make(groups, new)
        self.records: dict[str, NDArray[Any]] = {
            name: np.concatenate([column[kept], made[name].astype(column.dtype)]) for name, column in own.items()
        }
        self.records["adds_content"] = np.concatenate([np.zeros(len(kept), bool), made["adds_content"]])

    def _make(self, groups: Groups, new: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Gives the columns of the joined records."""
        own = self._run.records
        first, last = groups.rows[groups.starts], groups.rows[groups.starts + groups.sizes - 1]
        made = {name: column[first].copy() for name, column in own.items()}
        made["site"] = new[first]
        leaving = self._run.sites.role[own["site"][first]] == _OUTPUT
        made["seq"] = np.where(leaving, own["seq"][last], own["seq"][first])
        made["adds_content"] = np.zeros(len(groups), bool)
        held = groups.reduce(np.bitwise_and, own["has"])
        made["has"] = held & (HAS["statistics"] | HAS["tensors"])
        made["status"] = groups.reduce(np.maximum, own["status"])
        forms = _Forms(self._run.forms)
        plans = self._plans = self._plan(groups, new, forms, made)
        shared = np.array([plan is not None and plan.shared for plan in plans], dtype=bool)
        elements = np.array([_elements(form) for form in self._run.forms], dtype=np.int64)[own["form"]]
        fillers = {column.name: filler(column) for column in record_columns(frozenset(HAS)) if column.wanted_by}
        joined = ~shared
        if STATISTICS[0] in made:
            statistics = combine_statistics(own, elements, groups)
            for name in STATISTICS:
                made[name] = np.where(shared, made[name], statistics[name])
        if "content_sum" in made:
            made["adds_content"] = joined & (held & HAS["checksums"] != 0)
            made["content_sum"] = np.where(shared, made["content_sum"], add_checksums(own["content_sum"], groups))
        made["has"][shared] = own["has"][first][shared]
        for name in ("sketch", "checksum", "rows"):
            if name in made:
                made[name][joined] = fillers[name]
        saved = groups.reduce(np.minimum, own["tensor"]) >= 0
        made["tensor"] = np.where(saved, own["tensor"][first], -1)
        self._settle_shared(groups, shared, made)
        self.forms = forms.all
        for index in np.flatnonzero([plan is None for plan in plans]).tolist():
            made["status"][index] = max(int(made["status"][index]), Status.UNSUPPORTED)
            self.reasons.setdefault(len(self._kept) + index, "the parts do not fit together")
        return made

    def _plan(
        self, groups: Groups, new: NDArray[np.int64], forms: _Forms, made: dict[str, NDArray[Any]]
    ) -> list[Plan | None]:
        """Finds the plan of each joined record and fills in its form."""
        own, found = self._run.records, list[Plan | None]()
        sizes, rows = groups.sizes, groups.rows
        numbers = own["form"][rows].astype(np.int64)
        known: dict[tuple[int, bytes], tuple[Plan | None, int, str]] = {}
        for index, (start, size) in enumerate(zip(groups.starts.tolist(), sizes.tolist(), strict=True)):
            site, of_parts = int(new[rows[start]]), numbers[start : start + size]
            key = (site, of_parts.tobytes())
            if key not in known:
                known[key] = self._plan_one(site, of_parts.tolist(), forms)
            plan, made["form"][index], reason = known[key]
            found.append(plan)
            if reason:
                self.reasons[len(self._kept) + index] = reason
        return found

    def _plan_one(self, site: int, numbers: list[int], forms: _Forms) -> tuple[Plan | None, int, str]:
        sites, group = self._sites, self._sites.group_of(site)
        parts = self.groups[group].parts
        first = self._run.forms[numbers[0]]
        if len(numbers) < len(parts):
            names = ", ".join(self._run.nodes[part].path for part in parts)
            return None, numbers[0], f"not all of {names} were recorded here"
        shapes = tuple(self._run.forms[number].shape for number in numbers)
        place, whole = sites.place_of(site), sites.whole_shape(site)
        transform = self.groups[group].transform
        plan = make_plan(transform, shapes, whole, lasting=place[1] in _LASTING, entering=_enters(place))
        if plan is None:
            text = f"{tuple(Direction)[place[0]].value} {tuple(Role)[place[1]].value} {place[2]}"
            self.misfits.append(Misfit(group, text, place[1] in _LASTING, shapes, whole or ()))
            return None, numbers[0], "the parts do not fit together as the rule says"
        return plan, forms.number(replace(first, shape=plan.shape(shapes))), ""

    def _settle_shared(self, groups: Groups, shared: NDArray[np.bool_], made: dict[str, NDArray[Any]]) -> None:
        """Finds parts that should hold one tensor and do not.

        Gradients that leave them are then those of each consumer, and add up: of a sum only the sketch is known.
        """
        own = self._run.records
        differs = np.zeros(len(groups), dtype=bool)
        for name in ("norm", "mean", "checksum", "sketch"):
            if name in own:
                column = own[name] if own[name].ndim == 2 else own[name][:, None]
                same = column[groups.rows] == groups.spread(column[groups.rows[groups.starts]])
                same |= column[groups.rows] != column[groups.rows]
                differs |= ~np.logical_and.reduceat(same.all(axis=1), groups.starts) if len(groups) else False
        leaving = self._sites.directions(made["site"]) == _BACKWARD
        summed = differs & shared & leaving
        self._summed = frozenset(np.flatnonzero(summed).tolist())
        if summed.any():
            self._add(groups, summed, made)
        for index in np.flatnonzero(differs & shared & ~leaving).tolist():
            made["status"][index] = Status.UNSUPPORTED
            self.reasons[len(self._kept) + index] = "what enters the parts differs from part to part"

    def _add(self, groups: Groups, summed: NDArray[np.bool_], made: dict[str, NDArray[Any]]) -> None:
        """Makes records those of the sum of their parts."""
        own, held = self._run.records, groups.reduce(np.bitwise_and, self._run.records["has"])
        made["has"][summed] = (held & (HAS["sketch"] | HAS["tensors"]))[summed]
        if "sketch" in made:
            made["sketch"][summed] = add_sketches(own["sketch"], groups)[summed]

    # -- reading

    def _members(self, index: int) -> NDArray[np.int64]:
        start = self._groups.starts[index]
        return self._groups.rows[start : start + self._groups.sizes[index]]

    @property
    def below(self) -> RankView:
        """The view that this one is made of."""
        return self._run

    def origin(self, index: int) -> int:
        """Gives the row of the view below that a record is, or the first that it was joined from."""
        return int(self._kept[index] if index < len(self._kept) else self._members(index - len(self._kept))[0])

    def tensor(self, index: int) -> NDArray[Any] | None:
        """Gives the values of a record, joined where the record is."""
        if index < len(self._kept):
            return self._run.tensor(int(self._kept[index]))
        plan = self._plans[index - len(self._kept)]
        if plan is None:
            return None
        parts = [self._run.tensor(row) for row in self._members(index - len(self._kept)).tolist()]
        if any(part is None for part in parts):
            return None
        if index - len(self._kept) in self._summed:
            total: NDArray[Any] = np.add.reduce([part for part in parts if part is not None], dtype=np.float64)
            return total
        return plan.apply([part for part in parts if part is not None])

    def content_vectors(self, index: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]] | None:
        """Gives row and column sums of a record's content, joined where the record is; None where not recorded."""
        if index < len(self._kept):
            return self._run.content_vectors(int(self._kept[index]))
        plan, rows = self._plans[index - len(self._kept)], self._members(index - len(self._kept)).tolist()
        if plan is None:
            return None
        parts = [self._run.content_vectors(row) for row in rows]
        if any(part is None for part in parts):
            return None
        shapes = [self._run.forms[int(self._run.records["form"][row])].shape for row in rows]
        return plan.vectors([part for part in parts if part is not None], shapes)

    def row_statistics(self, index: int) -> Mapping[str, NDArray[Any]] | None:
        """Gives the row statistics of a record; None where there are none, as of joined records."""
        return self._run.row_statistics(int(self._kept[index])) if index < len(self._kept) else None


class _CombinedSites:
    """The sites of a view: the run's own, and one for each place that parts of a group share."""

    def __init__(self, run: RankView, groups: Sequence[NodeGroup], other: RankView) -> None:
        own = len(run.sites)
        self._run, self._own = run, own
        #: The new number of each of the run's sites, and which part of its group it belongs to.
        self.renumbered = np.arange(own, dtype=np.int64)
        self.part = np.zeros(own, dtype=np.int64)
        self._made: list[tuple[int, Place]] = []
        self._wholes: list[tuple[int, ...] | None] = []
        places, others = _places(run), _places(other)
        shapes = _first_shapes(other)
        for number, group in enumerate(groups):
            of_whole = others.get(group.whole, {})
            numbers: dict[Place, int] = {}
            for index, part in enumerate(group.parts):
                for place, site in places.get(part, {}).items():
                    if place not in numbers:
                        numbers[place] = own + len(self._made)
                        self._made.append((number, place))
                        self._wholes.append(shapes.get(of_whole.get(place, -1)))
                    self.renumbered[site], self.part[site] = numbers[place], index

    def directions(self, sites: NDArray[np.int64]) -> NDArray[np.int64]:
        """Gives the directions of joined sites."""
        return np.array([self._made[site - self._own][1][0] for site in sites.tolist()], dtype=np.int64)

    def group_of(self, site: int) -> int:
        return self._made[site - self._own][0]

    def place_of(self, site: int) -> Place:
        return self._made[site - self._own][1]

    def whole_shape(self, site: int) -> tuple[int, ...] | None:
        return self._wholes[site - self._own]

    def table(self, paths: list[str]) -> SiteTable:
        sites, nodes = self._run.sites, len(self._run.nodes)
        argument = np.empty(len(sites) + len(self._made), object)
        argument[: len(sites)] = sites.argument
        argument[len(sites) :] = [place[2] for _, place in self._made]

        def extended(column: NDArray[Any], more: list[int]) -> NDArray[Any]:
            return np.concatenate([column, np.array(more, dtype=column.dtype)])

        return SiteTable(
            node=extended(sites.node, [nodes + group for group, _ in self._made]),
            direction=extended(sites.direction, [place[0] for _, place in self._made]),
            role=extended(sites.role, [place[1] for _, place in self._made]),
            argument=argument,
            call=extended(sites.call, [place[3] for _, place in self._made]),
            stack=extended(sites.stack, [-1] * len(self._made)),
            node_paths=paths,
        )


class _Forms:
    """Forms by number, to which new ones are added."""

    def __init__(self, forms: Sequence[Form]) -> None:
        self._forms = list(forms)
        self._numbers = {form: number for number, form in enumerate(forms)}

    def number(self, form: Form) -> int:
        if form not in self._numbers:
            self._numbers[form] = len(self._forms)
            self._forms.append(form)
        return self._numbers[form]

    @property
    def all(self) -> tuple[Form, ...]:
        return tuple(self._forms)


def joined_node(nodes: Sequence[Node], group: NodeGroup) -> Node:
    """Gives the node that stands for a group: ``layers.0.attn.q+k+v``, in the container that holds all parts."""
    parts = [nodes[index] for index in group.parts]
    if len(parts) == 1:
        return parts[0]
    heads = {part.path.rpartition(".")[0] for part in parts}
    if len(heads) == 1:
        (head,) = heads
        name = "+".join(part.path.rpartition(".")[2].partition("/")[0] for part in parts)
        operator = parts[0].path.partition("/")[2]
        path = f"{head}.{name}" if head else name
        path += f"/{operator}" if operator else ""
    else:
        path = "+".join(part.path for part in parts)
    parents = [part.parent for part in parts]
    parent = parents[0] if len(set(parents)) == 1 else _common(parents)
    classes = dict.fromkeys(part.class_name for part in parts)
    return Node(path, parts[0].kind, "+".join(classes), parent, parts[0].api)


def _common(paths: Sequence[str | None]) -> str:
    """Gives the path that all paths lie in; the outermost module's is empty."""
    split = [(path or "").split(".") for path in paths]
    shared = []
    for segments in zip(*split, strict=False):
        if len(set(segments)) > 1:
            break
        shared.append(segments[0])
    return ".".join(shared)


def _places(run: RankView) -> dict[int, dict[Place, int]]:
    """Gives, for each node, its sites by what they are to it."""
    found: dict[int, dict[Place, int]] = defaultdict(dict)
    sites = run.sites
    columns = (sites.node.tolist(), sites.direction.tolist(), sites.role.tolist(), sites.argument, sites.call.tolist())
    for number, (node, direction, role, argument, call) in enumerate(zip(*columns, strict=True)):
        found[node][(direction, role, argument, call)] = number
    return found


def _first_shapes(run: RankView) -> dict[int, tuple[int, ...]]:
    """Gives the shape of each site's first record."""
    sites, rows = np.unique(run.records["site"], return_index=True)
    forms = run.records["form"][rows]
    return {site: run.forms[form].shape for site, form in zip(sites.tolist(), forms.tolist(), strict=True)}


def _enters(place: Place) -> bool:
    """Tells whether a tensor goes into its node, or is the gradient of one that does."""
    direction, role = place[:2]
    return (role == _INPUT and direction in (_FORWARD, _RECOMPUTE)) or (role == _OUTPUT and direction == _BACKWARD)


def _elements(form: Form) -> int:
    count = int(np.prod(form.shape, dtype=np.int64))
    return 2 * count if form.dtype.startswith("complex") else count
