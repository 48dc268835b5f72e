"""One numbering of sites for all ranks of a run.

Each rank numbers its sites in the order in which it met them, so with pipelines, experts or restarts the numbers
differ. A global number belongs to (node path, direction, role, argument, call). It never changes while a run grows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.sites import Direction, Role
from msprobe.core.trend.kinds import KINDS, SCALAR, expert_of, kind_of, layer_of, parameter_kind_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.run.reader import RankRun
    from msprobe.core.sites import Form

Key = tuple[str, str, str, str, int]

#: Columns of the sites table; the row is the site's global number.
TEXTS = ("node", "class_name", "node_kind", "direction", "role", "argument", "parameter_kind", "dtype", "shape")
NUMBERS = ("call", "kind", "layer", "expert", "phase", "stage", "local")
_PHASES = {"forward": 0, "recompute": 1, "backward": 1, "reduce": 2, "update": 3, SCALAR: 4}
_DIRECTIONS = [d.value for d in Direction]
_ROLES = [r.value for r in Role]


@dataclass(frozen=True)
class SiteCatalogue:
    """The sites of all ranks, a column for each of ``TEXTS`` (objects) and ``NUMBERS`` (int64).

    ``edges`` are (source, target) in global numbers, shape (n, 2), the union over ranks.
    """

    columns: Mapping[str, NDArray[Any]]
    edges: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.columns["node"])

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def key(self, site: int) -> Key:
        """Gives what identifies a site in every run: node path, direction, role, argument, call."""
        texts = (str(self.columns[name][site]) for name in ("node", "direction", "role", "argument"))
        node, direction, role, argument = texts
        return node, direction, role, argument, int(self.columns["call"][site])

    @cached_property
    def numbers(self) -> dict[Key, int]:
        """Gives the number of each key."""
        return {self.key(site): site for site in range(len(self))}

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Sites in order of execution: forward, backward, reduction, update; stages of a pipeline as they follow."""
        phase, stage = self.columns["phase"], self.columns["stage"]
        return np.lexsort((self.columns["local"], np.where(phase == 1, -stage, stage), phase)).astype(np.int64)

    @cached_property
    def position(self) -> NDArray[np.int64]:
        """Gives where in ``order`` each site stands."""
        position = np.empty(len(self), np.int64)
        position[self.order] = np.arange(len(self))
        return position

    def name(self, site: int) -> str:
        """Gives a site's name for people: ``model.norm forward output 0``."""
        node, direction, role, argument, call = self.key(site)
        if direction == SCALAR:
            return argument
        again = f" (call {call})" if call else ""
        return f"{node or '(the model)'} {direction} {role} {argument}".rstrip() + again


@dataclass
class SiteNumbering:
    """Gives global numbers while a run is read; ``catalogue`` gives what was numbered so far."""

    columns: dict[str, list[Any]] = field(default_factory=lambda: {name: [] for name in (*TEXTS, *NUMBERS)})
    edges: set[tuple[int, int]] = field(default_factory=set)
    _numbers: dict[Key, int] = field(default_factory=dict)
    _known: dict[bytes, NDArray[np.int64]] = field(default_factory=dict)
    _edges_known: set[bytes] = field(default_factory=set)

    @classmethod
    def of(cls, catalogue: SiteCatalogue) -> SiteNumbering:
        """Goes on where an earlier numbering ended."""
        columns = {name: list(catalogue[name].tolist()) for name in (*TEXTS, *NUMBERS)}
        return cls(columns, set(map(tuple, catalogue.edges.tolist())), dict(catalogue.numbers))

    def __len__(self) -> int:
        return len(self._numbers)

    def catalogue(self) -> SiteCatalogue:
        """Gives all sites numbered so far."""
        columns: dict[str, NDArray[Any]] = {name: np.array(self.columns[name], np.int64) for name in NUMBERS}
        for name in TEXTS:
            columns[name] = np.empty(len(self), object)
            columns[name][:] = self.columns[name]
        return SiteCatalogue(columns, np.array(sorted(self.edges), np.int64).reshape(-1, 2))

    def add_rank(self, rank: RankRun, stage: int) -> NDArray[np.int64]:
        """Numbers a rank's sites and takes its edges; gives the global number of each local one.

        Ranks with one and the same catalogue, as with data parallelism, are told by its digest and cost little.
        """
        sites = rank.sites
        digest = _digest(rank)
        if digest not in self._known:
            self._known[digest] = self._number(rank, stage)
        numbers = self._known[digest]
        edges_digest = digest + hashlib.blake2b(rank.edges.tobytes()).digest()
        if edges_digest not in self._edges_known and len(sites):
            self._edges_known.add(edges_digest)
            self.edges.update(map(tuple, numbers[rank.edges].tolist()))
        return numbers

    def add_scalar(self, name: str) -> int:
        """Numbers a run-wide scalar."""
        key = ("", SCALAR, SCALAR, name, 0)
        if key not in self._numbers:
            tags = {"kind": KINDS.index("scalar"), "layer": -1, "expert": -1, "phase": _PHASES[SCALAR], "stage": 0}
            self._append(key, {"class_name": "", "node_kind": "", "parameter_kind": "", **tags, "local": len(self)})
        return self._numbers[key]

    def note_forms(self, sites: list[int], forms: list[Form]) -> None:
        """Notes format and shape of sites."""
        for site, form in zip(sites, forms, strict=True):
            self.columns["dtype"][site], self.columns["shape"][site] = form.dtype, "x".join(map(str, form.shape))

    def formed(self) -> NDArray[np.bool_]:
        """Marks the sites whose form is known, and is not that of a tensor without elements."""
        columns = zip(self.columns["dtype"], self.columns["shape"], strict=True)
        return np.array([bool(dtype) and "0" not in shape.split("x") for dtype, shape in columns], bool)

    def _number(self, rank: RankRun, stage: int) -> NDArray[np.int64]:
        sites, nodes = rank.sites, rank.nodes
        numbers = np.empty(len(sites), np.int64)
        rows = zip(
            sites.node.tolist(), sites.direction.tolist(), sites.role.tolist(), sites.argument.tolist(),
            sites.call.tolist(), strict=True,
        )  # fmt: skip
        for local, (node, direction, role, argument, call) in enumerate(rows):
            where = nodes[node]
            key = (where.path, _DIRECTIONS[direction], _ROLES[role], argument, call)
            if key not in self._numbers:
                self._append(key, _tags(key, where.class_name, where.kind.value, stage, local))
            numbers[local] = self._numbers[key]
        return numbers

    def _append(self, key: Key, tags: Mapping[str, Any]) -> None:
        self._numbers[key] = len(self._numbers)
        names = ("node", "direction", "role", "argument", "call")
        row = {"dtype": "", "shape": "", **dict(zip(names, key, strict=True)), **tags}
        for name, column in self.columns.items():
            column.append(row[name])


def _tags(key: Key, class_name: str, node_kind: str, stage: int, local: int) -> dict[str, Any]:
    path, direction, role, argument, _ = key
    parameter = role in (Role.PARAMETER.value, Role.GRADIENT.value, "state")
    return {
        "class_name": class_name,
        "node_kind": node_kind,
        "kind": KINDS.index(kind_of(node_kind, direction, role, argument)),
        "layer": layer_of(path),
        "expert": expert_of(path),
        "parameter_kind": parameter_kind_of(path, class_name, argument) if parameter else "",
        "phase": _PHASES.get(direction, 3),
        "stage": stage,
        "local": local,
    }


def _digest(rank: RankRun) -> bytes:
    sites = rank.sites
    content = hashlib.blake2b("\0".join(rank.node_paths).encode("utf-8", "backslashreplace"))
    for column in (sites.node, sites.direction, sites.role, sites.call):
        content.update(column.tobytes())
    content.update("\0".join(sites.argument.tolist()).encode("utf-8", "backslashreplace"))
    return content.digest()
