"""Compaction: brings what ranks recorded into blocks of steps sorted by (site, step, rank), and makes roll-ups.

It goes on where it ended: a run that is still written costs what is new, plus the block that grows. Memory is bounded
by one block, whatever the length of the run. A restart that supersedes steps that were taken in makes it start anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.run import layout
from msprobe.core.run.reader import RankRun
from msprobe.core.trend.cells import COLUMNS, Columns, RankNumbers, cells_of, is_scalar, joined, scalar_cells
from msprobe.core.trend.circumstances import circumstances_of, signature_of
from msprobe.core.trend.global_sites import NUMBERS, TEXTS, SiteCatalogue, SiteNumbering
from msprobe.core.trend.manifest import Block, Manifest, Tile, replace_manifest
from msprobe.core.trend.ordering import order_by
from msprobe.core.trend.places import coordinates, peer_groups
from msprobe.core.trend.rollups import replica_scores, roll_up
from msprobe.core.trend.store import Store, write_sorted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.run.batch import Fact
    from msprobe.core.run.reader import Run
    from msprobe.core.run.record_stream import RecordStream
    from msprobe.core.sites import Form

#: Rows that a block is closed at; a single step may hold more.
BLOCK_ROWS = 2_000_000
#: Rows that a block of one rank is closed at: so a step's slice reads few rows.
_BLOCK_ROWS_OF_A_TILE = 500_000
RANKS_OF_A_TILE = 64


@dataclass(frozen=True, slots=True)
class _Source:
    """What is new of one rank."""

    numbers: RankNumbers
    forms: tuple[Form, ...]
    stream: RecordStream
    fresh: NDArray[np.bool_]
    scalars: Columns


class Compactor:
    """Brings the index of one run up to date. Only one may work on a folder at a time (``manifest.one_writer``)."""

    def __init__(self, run: Run, folder: Path, manifest: Manifest, *, block_rows: int = BLOCK_ROWS) -> None:
        import duckdb

        self._run, self._folder, self._block_rows = run, folder, block_rows
        self._manifest = manifest if manifest.started == run.started else Manifest(manifest.generation)
        self._numbering = SiteNumbering()
        self._sources: dict[int, _Source] = {}
        self._formed = np.zeros(0, bool)
        self._counter = 0
        self._connection = duckdb.connect()
        self._connection.execute("SET preserve_insertion_order = true")
        self._connection.execute("SET threads = 1")  # the other core reads the next block

    def refresh(self) -> Manifest:
        """Takes in what is new and gives the manifest; the same one when nothing is."""
        before = self._manifest
        if not self._read_ranks():
            self._manifest = Manifest(before.generation)
            self._read_ranks()
        if self._manifest == before:
            return before
        self._manifest = replace(self._manifest, generation=before.generation + 1, started=self._run.started)
        self._write_blocks()
        self._write_catalogue()
        replace_manifest(self._folder, self._manifest)
        return self._manifest

    def _read_ranks(self) -> bool:
        """Opens each rank that has grown and marks its new batches; False when what was taken in counts no more."""
        self._numbering, self._sources = SiteNumbering(), {}
        if self._manifest.sites:
            self._numbering = SiteNumbering.of(read_catalogue(Store(self._folder), self._manifest))
        ranks = {each.rank: each for each in self._manifest.ranks}
        for number in self._run.ranks:
            folder, key = layout.rank_folder(self._run.path, number), str(number)
            signature = signature_of(folder)
            if self._manifest.signatures.get(key) == signature:
                continue
            taken = self._manifest.positions.get(key, [])
            rank = RankRun(folder, verified=[batches for batches, _ in taken])  # dropped again: its commits are large
            stream = rank.record_stream()
            fresh = _fresh(stream, taken)
            if fresh is None:
                return False
            ranks[number] = circumstances_of(number, rank)
            scalars = self._add_rank(number, rank, stream, fresh)
            self._manifest = replace(
                self._manifest,
                signatures={**self._manifest.signatures, key: signature},
                positions={**self._manifest.positions, key: _positions(stream)},
                facts={**self._manifest.facts, key: scalars},
            )
        self._manifest = replace(self._manifest, ranks=tuple(ranks[number] for number in sorted(ranks)))
        return True

    def _add_rank(self, number: int, rank: RankRun, stream: RecordStream, fresh: NDArray[np.bool_]) -> int:
        """Keeps what is needed to read a rank's new batches; gives how many scalars it holds."""
        stage = coordinates(rank.info.mesh).get("pp", 0)
        sites = self._numbering.add_rank(rank, stage)
        numbers = RankNumbers.of(number, sites, rank.forms)
        every = [fact for fact in rank.facts if is_scalar(fact)]
        scalars = self._scalars(every[self._manifest.facts.get(str(number), 0) :], number)
        self._sources[number] = _Source(numbers, rank.forms, stream, fresh, scalars)
        return len(every)

    def _scalars(self, facts: list[Fact], rank: int) -> Columns:
        names = {fact.name: self._numbering.add_scalar(fact.name) for fact in facts}
        return scalar_cells(facts, rank, names)

    def _note_forms(self, source: _Source, records: Mapping[str, NDArray[Any]], cells: Columns) -> None:
        """Notes format and shape of sites that have none yet, or one without elements."""
        rows = np.flatnonzero(~self._formed[cells["site"]])
        if not len(rows):
            return
        sites, first = np.unique(cells["site"][rows], return_index=True)
        chosen = rows[first]
        forms = [source.forms[form] for form in records["form"][chosen].tolist()]
        self._numbering.note_forms(sites.tolist(), forms)
        self._formed[sites] = cells["elements"][chosen] > 0

    def _write_blocks(self) -> None:
        """Rewrites blocks that grow and adds new ones; one block is read while another is written."""
        plans = self._plans()
        self._formed = self._numbering.formed()
        blocks = {block.first: block for block in self._manifest.blocks}
        with ThreadPoolExecutor(1) as pool:
            writing: Future[Block] | None = None
            for first, last in plans:
                cells = self._cells(blocks.get(first), first, last)
                if writing is not None:
                    block = writing.result()
                    blocks[block.first] = block
                writing = pool.submit(self._write_block, cells)
                del cells
            if writing is not None:
                block = writing.result()
                blocks[block.first] = block
        self._manifest = replace(self._manifest, blocks=tuple(blocks[first] for first in sorted(blocks)))

    def _plans(self) -> list[tuple[int, int]]:
        """Gives first and last step of each block that has new cells."""
        steps = [s.stream.batches[s.fresh][:, 1:3] for s in self._sources.values()]
        steps += [
            np.stack([s.scalars["step"], np.ones_like(s.scalars["step"])], axis=1) for s in self._sources.values()
        ]
        every = np.concatenate(steps) if steps else np.zeros((0, 2), np.int64)
        names, inverse = np.unique(every[:, 0], return_inverse=True)
        rows = np.bincount(inverse.reshape(-1), weights=every[:, 1], minlength=len(names)).astype(np.int64)
        tiles = -(-len(self._manifest.ranks) // RANKS_OF_A_TILE)
        most = min(self._block_rows, _BLOCK_ROWS_OF_A_TILE * tiles)
        spans = [[block.first, block.last, block.rows] for block in self._manifest.blocks]
        touched: set[int] = set()
        for step, count in zip(names.tolist(), rows.tolist(), strict=True):
            index = int(np.searchsorted([span[0] for span in spans], step, side="right")) - 1
            inside = index >= 0 and (step <= spans[index][1] or index < len(spans) - 1)
            if not inside and (index < 0 or spans[index][2] + count > most):
                spans.insert(index + 1, [step, step, 0])
                index += 1
            spans[index][1] = max(spans[index][1], step)
            spans[index][2] += count
            touched.add(spans[index][0])
        return [(first, last) for first, last, _ in spans if first in touched]

    def _cells(self, old: Block | None, first: int, last: int) -> Columns:
        """Gives all cells of a block: those that were there, and the new ones."""
        parts: list[Columns] = []
        if old is not None:
            names = ", ".join(f'"{name}"' for name in COLUMNS)
            parts.append(Store(self._folder).read([tile.file for tile in old.tiles], names, "", []))
        for source in self._sources.values():
            steps = source.stream.batches[:, 1]
            for records in source.stream.read(source.fresh & (steps >= first) & (steps <= last)):
                parts.append(cells_of(records, source.numbers))
                self._note_forms(source, records, parts[-1])
            inside = (source.scalars["step"] >= first) & (source.scalars["step"] <= last)
            if inside.any():
                parts.append({name: column[inside] for name, column in source.scalars.items()})
        return joined(parts)

    def _write_block(self, cells: Columns) -> Block:
        ranks = np.unique(cells["rank"])
        group_of = np.zeros(int(ranks.max()) + 1, np.int32)
        group_of[ranks] = np.arange(len(ranks)) // RANKS_OF_A_TILE
        group = group_of[cells["rank"]]
        order = order_by(group, cells["site"], cells["step"], cells["rank"], cells["micro_step"])
        cells = {name: column[order] for name, column in cells.items()}
        group = group[order]
        ends = np.searchsorted(group, np.arange(int(group[-1]) + 2))
        tiles = []
        for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
            part = {name: column[start:end] for name, column in cells.items()}
            low, high = int(part["rank"].min()), int(part["rank"].max())
            tiles.append(Tile(self._write("cells", part), low, high, end - start))
        steps = cells["step"]
        names = [self._write(name, columns) for name, columns in self._roll_ups(cells)]
        return Block(int(steps.min()), int(steps.max()), len(steps), tuple(tiles), *names)

    def _roll_ups(self, cells: Columns) -> Iterator[tuple[str, Columns]]:
        peers = peer_groups({each.rank: each.mesh for each in self._manifest.ranks})
        peer_of = np.zeros(max(peers) + 1, np.int32)
        peer_of[list(peers)] = list(peers.values())
        kind_of = np.array(self._numbering.columns["kind"], np.uint8)
        rows = {**cells, "peer": peer_of[cells["rank"]], "kind": kind_of[cells["site"]]}
        yield "over_ranks", roll_up(rows, "site", "step") | replica_scores(rows)
        yield "over_steps", roll_up(rows, "site", "rank")
        yield "over_sites", roll_up(rows, "kind", "step", "rank")

    def _write(self, name: str, columns: Columns) -> str:
        self._counter += 1
        file = f"{name}-{self._manifest.generation:05d}-{self._counter:05d}.parquet"
        write_sorted(self._connection, self._folder / file, columns)
        return file

    def _write_catalogue(self) -> None:
        catalogue = self._numbering.catalogue()
        sites = self._write("sites", {name: catalogue[name] for name in (*TEXTS, *NUMBERS)})
        source, target = catalogue.edges.T
        edges = self._write("edges", {"source": source.copy(), "target": target.copy()})
        self._manifest = replace(self._manifest, sites=sites, edges=edges)


def read_catalogue(store: Store, manifest: Manifest) -> SiteCatalogue:
    """Reads the sites and edges of an index."""
    names = ", ".join(f'"{name}"' for name in (*TEXTS, *NUMBERS))
    columns = store.read([manifest.sites], names, "", [])
    edges = store.read([manifest.edges], "source, target", "", [])
    return SiteCatalogue(columns, np.stack([edges["source"], edges["target"]], axis=1).astype(np.int64).reshape(-1, 2))


def _fresh(stream: RecordStream, taken: list[list[int]]) -> NDArray[np.bool_] | None:
    """Marks the batches that were not taken in; None when some that were do not count any more."""
    fresh = np.ones(len(stream.batches), bool)
    for segment, (batches, records) in enumerate(taken):
        own = np.flatnonzero(stream.batches[:, 0] == segment)[:batches]
        if int(stream.batches[own, 2].sum()) != records or len(own) != batches:
            return None
        fresh[own] = False
    return fresh


def _positions(stream: RecordStream) -> list[list[int]]:
    positions = []
    for segment in range(len(stream.segments)):
        own = stream.batches[stream.batches[:, 0] == segment]
        positions.append([len(own), int(own[:, 2].sum())])
    return positions
