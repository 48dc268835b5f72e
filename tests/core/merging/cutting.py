"""Write runs of many ranks by cutting real tensors, with the real writer and the real measures."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.checksums import checksums_of
from msprobe.core.graph import EdgeSource
from msprobe.core.records import HAS, SKETCH_SIZE, STATISTICS
from msprobe.core.row_statistics import measure_rows
from msprobe.core.run.batch import Batch, Fact, RankInfo, RunHeader, SavedRows, SavedTensor, SiteRow
from msprobe.core.run.writer import RunWriter
from msprobe.core.sites import Direction, Form, Node, NodeKind, Role
from msprobe.core.sketches import sketch
from msprobe.core.statistics import measure

if TYPE_CHECKING:
    from msprobe.core.placement import Layout

ALL = frozenset({"statistics", "sketch", "checksums", "tensors", "rows"})
NO_TENSORS = frozenset({"statistics", "sketch", "checksums"})

_FORMATS = {"float32": "fp32", "float64": "fp64", "int64": "int64"}


@dataclass(frozen=True)
class Seen:
    """One tensor that a rank saw."""

    node: str
    values: Any
    direction: Direction = Direction.FORWARD
    role: Role = Role.OUTPUT
    argument: str = "0"
    micro_step: int = 0
    step: int = 0
    layout: Layout | None = None
    class_name: str = "Linear"

    @property
    def site(self) -> tuple[str, Direction, Role, str]:
        return self.node, self.direction, self.role, self.argument

    def with_values(self, values: Any) -> Seen:
        return replace(self, values=values)

    def cut(self, layout: Layout) -> Seen:
        """The part of the values that a layout describes."""
        starts, length = layout.runs()
        index = (starts[:, None] + np.arange(length)).reshape(-1)
        return replace(self, values=self.values.reshape(-1)[index].reshape(layout.shape), layout=layout)


@dataclass
class RankWriter:
    """Writes what one rank saw."""

    path: Path
    rank: int = 0
    world_size: int = 1
    mesh: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    what: frozenset[str] = ALL
    facts: tuple[tuple[str, str, Any], ...] = ()
    edges: tuple[tuple[Any, Any], ...] = ()

    def write(self, seen: Iterable[Seen]) -> None:
        info = RankInfo(self.rank, self.world_size, self.mesh)
        header = RunHeader("numpy", mesh={axis: size for axis, (_, size) in self.mesh.items()})
        writer = RunWriter(self.path, rank=info, header=header, what=self.what)
        everything = list(seen)
        nodes: dict[str, int] = {}
        sites: dict[Any, int] = {}
        forms: dict[Form, int] = {}
        sequence = 0
        for step in sorted({s.step for s in everything}):
            batch = Batch(step)
            rows = []
            for s in (s for s in everything if s.step == step):
                self._node(batch, nodes, s)
                if s.site not in sites:
                    sites[s.site] = len(sites)
                    batch.stacks.append((f"rank {self.rank}", s.node))
                    batch.sites.append(SiteRow(nodes[s.node], s.direction, s.role, s.argument, 0, sites[s.site]))
                layout = s.layout.to_json() if s.layout is not None else ""
                form = Form(_FORMATS[str(s.values.dtype)], s.values.shape, "dense", layout)
                if form not in forms:
                    forms[form] = len(forms)
                    batch.forms.append(form)
                rows.append(self._row(batch, s, sequence, sites[s.site], forms[form]))
                sequence += 1
            batch.records = {name: np.array([row[name] for row in rows]) for name in rows[0]}
            if step == min(s.step for s in everything):
                batch.facts = [Fact(step, 0, nodes[n], "parallel", name, value) for n, name, value in self.facts]
                batch.edges = [(sites[a], sites[b], EdgeSource.TRACED) for a, b in self.edges]
            writer.submit(batch)
        writer.close()
        assert writer.failure is None, writer.failure

    @staticmethod
    def _node(batch: Batch, nodes: dict[str, int], s: Seen) -> None:
        path = s.node
        names = ["", *itertools.accumulate(path.split("."), "{}.{}".format)] if path else [""]
        for name in names:
            if name not in nodes:
                nodes[name] = len(nodes)
                parent = None if not name else name.rpartition(".")[0]
                kind = s.class_name if name == path else "Module"
                batch.nodes.append(Node(name, NodeKind.MODULE, kind, parent))

    def _row(self, batch: Batch, s: Seen, seq: int, site: int, form: int) -> dict[str, Any]:
        values = np.ascontiguousarray(s.values)
        runs = s.layout.runs() if s.layout is not None and s.layout.index == "global" else None
        statistics = measure(values)
        positional, content = checksums_of(values, runs=runs)
        row: dict[str, Any] = {name: getattr(statistics, name) for name in STATISTICS}
        row |= {"seq": seq, "step": s.step, "micro_step": s.micro_step, "site": site, "form": form, "status": 0}
        row |= {"checksum": np.uint64(positional), "content_sum": np.uint64(content)}
        row["sketch"] = sketch(values, runs=runs) if values.size else np.zeros(SKETCH_SIZE)
        row["has"] = sum(HAS[name] for name in self.what)
        row["tensor"] = seq if "tensors" in self.what else -1
        row["rows"] = seq if "rows" in self.what else -1
        if "tensors" in self.what:
            batch.tensors.append(SavedTensor(seq, _FORMATS[str(values.dtype)], values.shape, values.copy()))
        if "rows" in self.what:
            batch.rows.append(SavedRows(seq, measure_rows(values)))
        return row


#: Gives what a rank with these coordinates sees.
Look = Callable[[dict[str, int]], Iterable[Seen]]


def write_ranks(path: Path, sizes: Mapping[str, int], look: Look, **settings: Any) -> Path:
    """Writes a run of all ranks of a mesh; the last axis counts fastest."""
    places = list(itertools.product(*(range(size) for size in sizes.values())))
    for rank, place in enumerate(places):
        coordinates = dict(zip(sizes, place, strict=True))
        mesh = {axis: (coordinates[axis], size) for axis, size in sizes.items()}
        own = {name: value(coordinates) if callable(value) else value for name, value in settings.items()}
        RankWriter(path, rank, len(places), **{"mesh": mesh, **own}).write(look(coordinates))
    return path


def write_one(path: Path, seen: Iterable[Seen], **settings: Any) -> Path:
    """Writes a run of one rank."""
    RankWriter(path, **settings).write(seen)
    return path
