"""The catalogue of a rank: nodes, sites, forms, stacks and edges of all its segments, under one numbering.

Every segment counts its own from 0. A restarted process meets mostly the same sites, so equal ones become one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from msprobe.core.graph import EdgeSource
from msprobe.core.sites import Direction, Form, Node, NodeKind, Role, Site

if TYPE_CHECKING:
    from msprobe.core.run.segment_reader import SegmentReader
    from msprobe.core.run.streams import Values

_Numbers = NDArray[np.int64]
_KeyT = TypeVar("_KeyT", bound=Hashable)


@dataclass(frozen=True)
class SiteTable:
    """All sites of a rank, a NumPy column for each field; the row is the site's number.

    ``node`` is a row of the rank's nodes, ``direction`` and ``role`` are positions in ``tuple(Direction)`` and
    ``tuple(Role)``, ``stack`` is a position in the rank's stacks or -1.
    """

    node: NDArray[np.int32]
    direction: NDArray[np.uint8]
    role: NDArray[np.uint8]
    argument: NDArray[np.object_]
    call: NDArray[np.int32]
    stack: NDArray[np.int32]
    #: Paths of the rank's nodes.
    node_paths: list[str] = field(repr=False)

    def __len__(self) -> int:
        return len(self.node)

    def site(self, number: int) -> Site:
        """Gives one site by its number."""
        return Site(
            node=self.node_paths[self.node[number]],
            direction=tuple(Direction)[self.direction[number]],
            role=tuple(Role)[self.role[number]],
            argument=self.argument[number],
            call=int(self.call[number]),
        )


class Catalogue:
    """Reads the catalogues of a rank's segments; keeps, for each, how its numbers map to the rank's."""

    def __init__(self, segments: list[SegmentReader]) -> None:
        self._segments = segments

    @cached_property
    def _node_table(self) -> tuple[dict[str, Values], list[_Numbers]]:
        return _joined([s.columns("nodes") for s in self._segments], key=lambda c: c["path"])

    @cached_property
    def node_paths(self) -> list[str]:
        """Paths of the nodes by number."""
        return list(self._node_table[0]["path"])

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes by number."""
        table = self._node_table[0]
        kinds = {kind.value: kind for kind in NodeKind}
        rows = zip(table["path"], table["kind"], table["class_name"], table["parent"], table["api"], strict=True)
        return tuple(Node(path, kinds[kind], name, parent, api) for path, kind, name, parent, api in rows)

    def node_numbers(self, segment: int) -> _Numbers:
        """Maps the node numbers of the ``segment``-th segment to the rank's."""
        return self._node_table[1][segment]

    @cached_property
    def _form_table(self) -> tuple[dict[str, Values], list[_Numbers]]:
        tables = [s.columns("forms") for s in self._segments]
        return _joined(tables, key=lambda c: zip(c["dtype"], c["shape"], c["kind"], c["layout"], strict=True))

    @cached_property
    def forms(self) -> tuple[Form, ...]:
        """The forms by number."""
        table = self._form_table[0]
        rows = zip(table["dtype"], table["shape"], table["kind"], table["layout"], strict=True)
        return tuple(Form(*row) for row in rows)

    def form_numbers(self, segment: int) -> _Numbers:
        """Maps the form numbers of the ``segment``-th segment to the rank's."""
        return self._form_table[1][segment]

    @cached_property
    def _stack_table(self) -> tuple[list[tuple[str, ...]], list[_Numbers]]:
        return _interned([s.stacks() for s in self._segments])

    @property
    def stacks(self) -> list[tuple[str, ...]]:
        """The call stacks by number, innermost frame last."""
        return self._stack_table[0]

    @cached_property
    def _site_table(self) -> tuple[dict[str, Values], list[_Numbers]]:
        tables = [self._translated_sites(i, s) for i, s in enumerate(self._segments)]
        return _joined(tables, key=_site_keys)

    def _translated_sites(self, segment: int, reader: SegmentReader) -> dict[str, Values]:
        columns = dict(reader.columns("sites"))
        columns["node"] = self.node_numbers(segment)[np.asarray(columns["node"], np.int64)].astype(np.int32)
        columns["direction"] = _translated(columns["direction"], reader.codes["direction"], Direction)
        columns["role"] = _translated(columns["role"], reader.codes["role"], Role)
        stacks = np.append(self._stack_table[1][segment], -1)
        columns["stack"] = stacks[np.asarray(columns["stack"], np.int64)].astype(np.int32)
        return columns

    @cached_property
    def sites(self) -> SiteTable:
        """The sites by number."""
        table = self._site_table[0]
        argument = np.empty(len(table["argument"]), object)
        argument[:] = table["argument"]
        numbers = {name: np.asarray(table[name]) for name in ("node", "direction", "role", "call", "stack")}
        return SiteTable(argument=argument, node_paths=self.node_paths, **numbers)

    def site_numbers(self, segment: int) -> _Numbers:
        """Maps the site numbers of the ``segment``-th segment to the rank's."""
        return self._site_table[1][segment]

    @cached_property
    def _edge_table(self) -> tuple[_Numbers, NDArray[np.uint8]]:
        pairs, kinds = [np.empty((0, 2), np.int64)], [np.empty(0, np.uint8)]
        for i, reader in enumerate(self._segments):
            columns = reader.columns("edges")
            ends = np.stack([np.asarray(columns[name], np.int64) for name in ("source", "target")], axis=1)
            pairs.append(self.site_numbers(i)[ends])
            kinds.append(_translated(columns["known_by"], reader.codes["known_by"], EdgeSource))
        all_pairs, all_kinds = np.concatenate(pairs), np.concatenate(kinds)
        if len(self._segments) < 2:
            return all_pairs, all_kinds
        _, first = np.unique(all_pairs, axis=0, return_index=True)
        first.sort()
        return all_pairs[first], all_kinds[first]

    @property
    def edges(self) -> _Numbers:
        """Source and target site of each data-flow edge, shape (n, 2)."""
        return self._edge_table[0]

    @property
    def edges_known_by(self) -> NDArray[np.uint8]:
        """How each edge is known, as a position in ``tuple(EdgeSource)``."""
        return self._edge_table[1]


def _site_keys(columns: dict[str, Values]) -> Iterable[Hashable]:
    numbers = (np.asarray(columns[name]).tolist() for name in ("node", "direction", "role", "call"))
    return zip(*numbers, columns["argument"], strict=True)


def _joined(tables: list[dict[str, Values]], *, key: Any) -> tuple[dict[str, Values], list[_Numbers]]:
    """Puts tables into one in which each key stands once; gives it and the row of each old row in it."""
    if len(tables) == 1:
        return tables[0], [np.arange(_length(tables[0]))]
    _, numbers = _interned([list(key(table)) for table in tables])
    seen = 0
    fresh: list[list[int]] = []
    for rows in numbers:
        fresh.append([i for i, number in enumerate(rows.tolist()) if number >= seen])
        seen = max(seen, int(rows.max(initial=-1)) + 1)
    names = tables[0] if tables else ()
    return {name: _picked([table[name] for table in tables], fresh) for name in names}, numbers


def _interned(lists: list[list[_KeyT]]) -> tuple[list[_KeyT], list[_Numbers]]:
    """Numbers distinct keys in the order in which they first occur."""
    known: dict[_KeyT, int] = {}
    numbers = [np.array([known.setdefault(key, len(known)) for key in keys], np.int64) for keys in lists]
    return list(known), numbers


def _picked(columns: list[Values], rows: list[list[int]]) -> Values:
    if isinstance(columns[0], np.ndarray):
        return np.concatenate([np.asarray(column)[picked] for column, picked in zip(columns, rows, strict=True)])
    return [column[i] for column, picked in zip(columns, rows, strict=True) for i in picked]


def _length(table: dict[str, Values]) -> int:
    return len(next(iter(table.values())))


def _translated(codes: Values, names: list[str], kind: Any) -> NDArray[np.uint8]:
    """Gives the codes of this version for those that a segment explains as ``names``."""
    positions = {member.value: code for code, member in enumerate(kind)}
    table = np.array([positions.get(name, 255) for name in names], np.uint8)
    return table[np.asarray(codes, np.int64)]
