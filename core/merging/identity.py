"""Who a rank's nodes and sites are in the whole model: local numbers made global, stages put in order.

Adapters record what a rank cannot be asked for later as facts of kind ``parallel`` on a node; each holds for all below:

    path     the node's path in the whole model, where this rank numbers its layers or experts from 0 (where no rank
             has such a fact, ``numbering`` tells from the numbers themselves)
    stage    the place of the node's pipeline stage in the order of execution, virtual stages counted

A container that several stages have (the model itself) is entered in the first and left in the last one; what the
others see of it is the boundary between stages: its sites are kept apart, and only carry the data flow on. So do
collectives, which a run on one rank does not have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.merging.axes import Nature, nature
from msprobe.core.merging.numbering import LocalNumbers, global_numbers
from msprobe.core.merging.paths import moved, nearest
from msprobe.core.sites import Direction, Node, NodeKind, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.merging.planning import Mesh
    from msprobe.core.run.reader import RankRun

PARALLEL = "parallel"
#: Marks arguments of sites at the boundary between two stages; no recorder writes it.
BOUNDARY = "@stage "

_DIRECTIONS, _ROLES = tuple(Direction), tuple(Role)
#: Sites that belong to the first stage; their opposites belong to the last one.
_ENTERED = {(Direction.FORWARD, Role.INPUT), (Direction.RECOMPUTE, Role.INPUT), (Direction.BACKWARD, Role.OUTPUT)}

#: (global path of the node, direction, role, argument, call).
SiteKey = tuple[str, int, int, str, int]


@dataclass(frozen=True)
class RankIdentity:
    """For each local node its global path and its stage; for each local site its key."""

    paths: list[str]
    stages: NDArray[np.int64]
    nodes: list[Node]


def identify(rank: RankRun, mesh: Mesh, local: LocalNumbers) -> RankIdentity:
    """Gives the nodes of a rank their global names.

    Args:
        rank: What the rank recorded.
        mesh: Its coordinate and size along each axis.
        local: What the numbers themselves tell, where no fact does.
    """
    renamed, staged = _facts(rank)
    if not renamed:
        renamed, staged = dict(local.renamed), {**local.stages, **staged}
    own_stage = mesh["pp"][0] if "pp" in mesh else 0
    paths, stages, nodes = [], [], []
    for node in rank.nodes:
        prefix = nearest(node.path, renamed)
        path = node.path if prefix is None else moved(node.path, prefix, renamed[prefix])
        above = nearest(node.path, staged)
        stages.append(own_stage if above is None else staged[above])
        paths.append(path)
        nodes.append(_renamed(node, path, renamed))
    return RankIdentity(paths, np.array(stages, dtype=np.int64), nodes)


def _facts(rank: RankRun) -> tuple[dict[str, str], dict[str, int]]:
    nodes = rank.nodes
    renamed: dict[str, str] = {}
    staged: dict[str, int] = {}
    for fact in rank.facts:
        if fact.kind != PARALLEL or fact.node < 0:
            continue
        if fact.name == "path" and isinstance(fact.value, str):
            renamed[nodes[fact.node].path] = fact.value
        elif fact.name == "stage" and isinstance(fact.value, int):
            staged[nodes[fact.node].path] = fact.value
    return renamed, staged


def _renamed(node: Node, path: str, renamed: Mapping[str, str]) -> Node:
    parent = node.parent
    if parent is not None:
        prefix = nearest(parent, renamed)
        parent = parent if prefix is None else moved(parent, prefix, renamed[prefix])
    return Node(path, node.kind, node.class_name, parent, node.api)


@dataclass(frozen=True)
class WholeCatalogue:
    """Nodes and sites of the whole model, and the number that each rank's nodes and sites have in it.

    ``sites`` are keys, ``boundary`` marks those at a boundary between stages: no record is one of theirs. ``present``
    gives for each node the ranks that have it, ``stacks`` for each site a rank (position) and the number of the call
    stack there (-1: none), ``links`` pairs of sites between which a stage hands over.
    """

    nodes: list[Node]
    sites: list[SiteKey]
    stacks: list[tuple[int, int]]
    site_numbers: list[NDArray[np.int64]]
    node_numbers: list[NDArray[np.int64]]
    boundary: NDArray[np.bool_]
    stage: NDArray[np.int64]
    present: list[frozenset[int]]
    links: NDArray[np.int64]


def unite(ranks: Sequence[RankRun], numbers: Sequence[int], meshes: Sequence[Mesh], virtual: int = 1) -> WholeCatalogue:
    """Puts the catalogues of all ranks into one.

    Args:
        ranks: What each rank recorded.
        numbers: The global rank of each.
        meshes: Its coordinate and size along each axis.
        virtual: How many chunks of the model a pipeline rank holds, where it did not record its stages.
    """
    local = global_numbers([rank.nodes for rank in ranks], meshes, virtual)
    identities = [identify(rank, mesh, found) for rank, mesh, found in zip(ranks, meshes, local, strict=True)]
    extents = _extents(ranks, identities)
    builder = _Builder()
    for rank, number, identity in zip(ranks, numbers, identities, strict=True):
        builder.add(rank, number, identity, extents)
    return builder.finish()


def _extents(ranks: Sequence[RankRun], identities: Sequence[RankIdentity]) -> dict[str, tuple[int, int]]:
    """Gives the first and last stage in which each node is called; nodes of one stage are left out."""
    found: dict[str, tuple[int, int]] = {}
    for rank, identity in zip(ranks, identities, strict=True):
        called = np.unique(rank.sites.node[np.isin(rank.sites.role, _CALLED)])
        for node in called.tolist():
            path, stage = identity.paths[node], int(identity.stages[node])
            low, high = found.get(path, (stage, stage))
            found[path] = (min(low, stage), max(high, stage))
    return {path: extent for path, extent in found.items() if extent[0] != extent[1]}


_CALLED = [_ROLES.index(role) for role in (Role.INPUT, Role.OUTPUT)]


class _Builder:
    def __init__(self) -> None:
        self.node_of: dict[str, int] = {}
        self.site_of: dict[SiteKey, int] = {}
        self.nodes: list[Node] = []
        self.present: list[set[int]] = []
        self.stacks: list[tuple[int, int]] = []
        self.stages: list[int] = []
        self.boundary: list[bool] = []
        self.site_numbers: list[NDArray[np.int64]] = []
        self.node_numbers: list[NDArray[np.int64]] = []
        self.handed: dict[tuple[str, int, int, str, int], dict[int, int]] = {}

    def add(self, rank: RankRun, number: int, identity: RankIdentity, extents: Mapping[str, tuple[int, int]]) -> None:
        self.node_numbers.append(np.array([self._node(n, number) for n in identity.nodes], dtype=np.int64))
        sites = rank.sites
        columns = (sites.node, sites.direction, sites.role, sites.argument, sites.call, sites.stack)
        found = np.empty(len(sites), dtype=np.int64)
        for local, (node, direction, role, argument, call, stack) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        ):
            path, stage = identity.paths[node], int(identity.stages[node])
            key = (path, direction, role, argument, call)
            extent = extents.get(path)
            away = extent is not None and role in _CALLED and self._is_boundary(key, stage, extent)
            if away:
                key = (path, direction, role, f"{argument}{BOUNDARY}{stage}", call)
            hidden = away or rank.nodes[node].kind is NodeKind.COLLECTIVE
            found[local] = self._site(key, (len(self.site_numbers), stack), stage, away=hidden)
            if extent is not None and role in _CALLED:
                self.handed.setdefault((path, direction, role, argument, call), {})[stage] = int(found[local])
        self.site_numbers.append(found)

    def _node(self, node: Node, rank: int) -> int:
        number = self.node_of.setdefault(node.path, len(self.nodes))
        if number == len(self.nodes):
            self.nodes.append(node)
            self.present.append(set())
        self.present[number].add(rank)
        return number

    def _site(self, key: SiteKey, stack: tuple[int, int], stage: int, *, away: bool) -> int:
        number = self.site_of.setdefault(key, len(self.stacks))
        if number == len(self.stacks):
            self.stacks.append(stack)
            self.stages.append(stage)
            self.boundary.append(away)
        return number

    @staticmethod
    def _is_boundary(key: SiteKey, stage: int, extent: tuple[int, int]) -> bool:
        entered = (_DIRECTIONS[key[1]], _ROLES[key[2]]) in _ENTERED
        return stage != (extent[0] if entered else extent[1])

    def _links(self) -> NDArray[np.int64]:
        """Pairs what a stage hands over with what the next one takes: by argument, else everything with everything."""
        forward, backward = (_DIRECTIONS.index(d) for d in (Direction.FORWARD, Direction.BACKWARD))
        output, entry = _ROLES.index(Role.OUTPUT), _ROLES.index(Role.INPUT)
        places: dict[tuple[str, int, int, int], dict[tuple[int, str], int]] = {}
        for (path, direction, role, argument, call), by_stage in self.handed.items():
            for stage, site in by_stage.items():
                places.setdefault((path, direction, role, stage), {})[(call, argument)] = site
        links: list[tuple[int, int]] = []
        for (path, direction, role, stage), given in places.items():
            if role != output:
                continue
            later = 1 if direction == forward else -1 if direction == backward else 0
            stages = [s for (p, d, r, s) in places if (p, d, r) == (path, direction, entry) and (s - stage) * later > 0]
            if not stages:
                continue
            taken = places[(path, direction, entry, min(stages, key=lambda s: abs(s - stage)))]
            by_name = [(site, taken[key]) for key, site in given.items() if key in taken]
            links += by_name or [(a, b) for a in given.values() for b in taken.values()]
        return np.array(links, dtype=np.int64).reshape(-1, 2)

    def finish(self) -> WholeCatalogue:
        return WholeCatalogue(
            self.nodes,
            list(self.site_of),
            self.stacks,
            self.site_numbers,
            self.node_numbers,
            np.array(self.boundary, dtype=bool),
            np.array(self.stages, dtype=np.int64),
            [frozenset(ranks) for ranks in self.present],
            self._links(),
        )


def natures(sites: Sequence[SiteKey]) -> NDArray[np.int64]:
    """Gives each site's ``Nature``."""
    table = {(d, r): nature(_DIRECTIONS[d], _ROLES[r]) for d in range(len(_DIRECTIONS)) for r in range(len(_ROLES))}
    return np.array([table[(key[1], key[2])] for key in sites], dtype=np.int64)


__all__ = ["BOUNDARY", "PARALLEL", "Nature", "SiteKey", "WholeCatalogue", "identify", "natures", "unite"]
