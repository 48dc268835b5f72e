"""The catalogue of a merged run: nodes, sites and data flow of the whole model, and what its ranks recorded beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.graph import EdgeSource
from msprobe.core.merging.identity import WholeCatalogue, unite
from msprobe.core.run.batch import Event, Fact, RankInfo
from msprobe.core.run.catalogue import SiteTable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.merging.planning import Mesh
    from msprobe.core.run.reader import RankRun
    from msprobe.core.sites import Node


class MergedGraph:
    """Nodes, sites, edges, facts and events of several ranks as those of one model."""

    def __init__(
        self, ranks: Sequence[RankRun], numbers: Sequence[int], meshes: Mapping[int, Mesh], virtual: int = 1
    ) -> None:
        self.ranks = list(ranks)
        #: The global rank of each of ``ranks``.
        self.numbers = tuple(numbers)
        self.meshes = meshes
        self._virtual = virtual

    @cached_property
    def catalogue(self) -> WholeCatalogue:
        """Nodes and sites of the whole model."""
        return unite(self.ranks, self.numbers, [self.meshes[number] for number in self.numbers], self._virtual)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes by number."""
        return tuple(self.catalogue.nodes)

    def node_number(self, path: str) -> int:
        """Gives the number of a node by its path."""
        return self._numbers[path]

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {node.path: number for number, node in enumerate(self.catalogue.nodes)}

    @property
    def node_paths(self) -> list[str]:
        """Paths of the nodes by number."""
        return [node.path for node in self.catalogue.nodes]

    @cached_property
    def sites(self) -> SiteTable:
        """The sites by number, as columns."""
        keys = self.catalogue.sites
        argument = np.empty(len(keys), object)
        argument[:] = [key[3] for key in keys]
        return SiteTable(
            node=np.array([self._numbers[key[0]] for key in keys], dtype=np.int32),
            direction=np.array([key[1] for key in keys], dtype=np.uint8),
            role=np.array([key[2] for key in keys], dtype=np.uint8),
            argument=argument,
            call=np.array([key[4] for key in keys], dtype=np.int32),
            stack=np.array([self._stack_numbers.get(stack, -1) for stack in self.catalogue.stacks], dtype=np.int32),
            node_paths=self.node_paths,
        )

    @cached_property
    def _stack_numbers(self) -> dict[tuple[int, int], int]:
        found: dict[tuple[int, int], int] = {}
        for stack in self.catalogue.stacks:
            if stack[1] >= 0:
                found.setdefault(stack, len(found))
        return found

    @cached_property
    def stacks(self) -> list[tuple[str, ...]]:
        """The call stacks by number, innermost frame last; of a site that several ranks have, the lowest rank's."""
        return [self.ranks[position].stacks[stack] for position, stack in self._stack_numbers]

    @cached_property
    def _edge_table(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        pairs = [self.catalogue.links]
        kinds = [np.full(len(self.catalogue.links), list(EdgeSource).index(EdgeSource.IDENTITY), dtype=np.uint8)]
        for rank, numbers in zip(self.ranks, self.catalogue.site_numbers, strict=True):
            if len(rank.edges):
                pairs.append(numbers[rank.edges])
                kinds.append(rank.edges_known_by)
        every, known_by = np.concatenate(pairs), np.concatenate(kinds)
        _, first = np.unique(every, axis=0, return_index=True)
        first.sort()
        return every[first], known_by[first]

    @property
    def edges(self) -> NDArray[np.int64]:
        """Source and target site of each data-flow edge, shape (n, 2)."""
        return self._edge_table[0]

    @property
    def edges_known_by(self) -> NDArray[np.uint8]:
        """How each edge is known, as a position in ``tuple(EdgeSource)``."""
        return self._edge_table[1]

    @property
    def info(self) -> RankInfo:
        """The one rank that all are seen as."""
        return replace(self.ranks[0].info, rank=0, world_size=1, mesh={})

    @cached_property
    def facts(self) -> list[Fact]:
        """What is no tensor; of a fact that several ranks recorded, the lowest rank's."""
        found: dict[tuple[int, int, int, str, str], Fact] = {}
        for rank, numbers in zip(self.ranks, self.catalogue.node_numbers, strict=True):
            for fact in rank.facts:
                node = int(numbers[fact.node]) if fact.node >= 0 else -1
                key = (fact.step, fact.micro_step, node, fact.kind, fact.name)
                found.setdefault(key, Fact(fact.step, fact.micro_step, node, fact.kind, fact.name, fact.value))
        return sorted(found.values(), key=lambda fact: (fact.step, fact.micro_step))

    @cached_property
    def events(self) -> list[Event]:
        """What happened to the recording; equal events of several ranks once, with their counts added."""
        counts: dict[tuple[str, str, int, str], int] = {}
        for rank in self.ranks:
            for event in rank.events:
                key = (event.kind, event.message, event.step, event.node)
                counts[key] = counts.get(key, 0) + event.count
        return [Event(*key, count) for key, count in counts.items()]
