"""Opens runs for reading. Nothing is read before it is asked for, and nothing is ever written.

A run keeps what each rank recorded in segments, one for each (re)start of its process; here a rank is one whole again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.errors import RunError
from msprobe.core.records import HAS, VECTORS, Column, record_columns
from msprobe.core.run import layout, tables
from msprobe.core.run.batch import Event, Fact, RankInfo, RunHeader
from msprobe.core.run.catalogue import Catalogue, SiteTable
from msprobe.core.run.decoding import decode
from msprobe.core.run.record_stream import PLACE_WIDTH, RecordStream, SegmentRecords, translated
from msprobe.core.run.saved_vectors import SavedVectors
from msprobe.core.run.segment_reader import Commit, SegmentReader, from_members, read_json, step_ends

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from numpy.typing import NDArray

    from msprobe.core.sites import Form, Node

__all__ = ["RankRun", "Run", "SiteTable", "open_run"]


def open_run(path: Path | str) -> Run:
    """Opens a run directory.

    Raises:
        RunError: It is no run, an empty one, or damaged.
        RunVersionError: A newer msprobe wrote it.
    """
    return Run(Path(path))


class Run:
    """What one job recorded, all of its ranks.

    ``ranks`` are those that have a folder; ``header.mesh`` and ``rank(r).info.world_size`` tell how many there were.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        content = read_json(_run_file(path), layout.RUN_FORMAT)
        self.header: RunHeader = from_members(RunHeader, content["header"])
        #: When recording started, in seconds since 1970.
        self.started = float(content["started"])
        folders = [f for f in (path / layout.RANKS_FOLDER).glob("[0-9]*") if f.name.isdigit()]
        self.ranks: tuple[int, ...] = tuple(sorted(int(f.name) for f in folders if layout.segment_numbers(f)))
        if not self.ranks:
            raise RunError(f"{path}: an empty run: recording started, but no rank has written anything")
        self._ranks: dict[int, RankRun] = {}

    def rank(self, rank: int) -> RankRun:
        """Gives what one rank recorded.

        Raises:
            RunError: The run has no such rank.
        """
        if rank not in self.ranks:
            raise RunError(f"{self.path}: has no rank {rank}; it holds {_spans(self.ranks)}")
        if rank not in self._ranks:
            self._ranks[rank] = RankRun(layout.rank_folder(self.path, rank))
        return self._ranks[rank]

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """The steps that any rank has records of."""
        return tuple(sorted({step for rank in self.ranks for step in self.rank(rank).steps}))

    @property
    def duration(self) -> float:
        """Seconds from the start to the last committed batch."""
        return max(self.rank(rank).last_commit for rank in self.ranks) - self.started

    @property
    def altered(self) -> bool:
        """Whether recording changed how the program computed, by the header or by an event."""
        events = (event for rank in self.ranks for event in self.rank(rank).events)
        return self.header.altered or any(event.kind == "altered" for event in events)

    @property
    def num_records(self) -> int:
        """How many records all ranks hold."""
        return sum(self.rank(rank).num_records for rank in self.ranks)

    def sizes(self) -> dict[str, int]:
        """Gives the bytes on disk of each kind of file: records, tensors, rows, nodes, sites, ..."""
        sizes: dict[str, int] = {}
        for file in (self.path / layout.RANKS_FOLDER).rglob("*"):
            if file.is_file():
                stored = file.parent.name in (layout.TENSORS_FOLDER, layout.ROWS_FOLDER)
                kind = file.parent.name if stored else file.name.partition("-")[0]
                sizes[kind] = sizes.get(kind, 0) + file.stat().st_size
        return sizes

    def to_arrow(self, rank: int = 0) -> pa.Table:
        """Gives one rank's records with names resolved, as a pyarrow table (needs pyarrow)."""
        return tables.to_arrow(self.rank(rank).table())

    def to_pandas(self, rank: int = 0) -> pd.DataFrame:
        """Gives one rank's records with names resolved, as a pandas frame (needs pandas)."""
        return tables.to_pandas(self.rank(rank).table())

    def __repr__(self) -> str:
        flags = [name for name, on in (("perturbed", self.header.perturbed), ("altered", self.altered)) if on]
        torn = sum(self.rank(rank).torn_batches for rank in self.ranks)
        superseded = sum(self.rank(rank).num_superseded for rank in self.ranks)
        flags += [f"{torn} torn batches left out"] if torn else []
        flags += [f"{superseded:,} superseded by a restart"] if superseded else []
        steps = _spans(self.steps, "step") if self.steps else "no steps"
        parts = (self.header.framework or "unknown framework", _spans(self.ranks, "rank"), steps)
        return f"<Run {self.path}: {', '.join(parts)}, {self.num_records:,} records{''.join(f', {f}' for f in flags)}>"


class RankRun:
    """What one rank recorded, its segments joined. Everything is read on first use and kept.

    A restart that goes back to an earlier step supersedes what segments before it hold from that step on: records and
    facts of the abandoned steps are left out, and counted in ``num_superseded``. ``verified`` are numbers of batches of
    each segment whose sums need not be checked again.
    """

    def __init__(self, folder: Path, *, verified: Sequence[int] = ()) -> None:
        self.path = folder
        self._segments = [
            SegmentReader(folder, number, verified=verified[i] if i < len(verified) else 0)
            for i, number in enumerate(layout.segment_numbers(folder))
        ]
        self._catalogue = Catalogue(self._segments)

    @property
    def info(self) -> RankInfo:
        """Who recorded, as of the last start."""
        return self._segments[-1].rank

    @property
    def what(self) -> frozenset[str]:
        """What was kept of each tensor, over all (re)starts."""
        return frozenset().union(*(segment.what for segment in self._segments))

    @property
    def headers(self) -> tuple[RunHeader, ...]:
        """The header of each (re)start."""
        return tuple(segment.header for segment in self._segments)

    @property
    def starts(self) -> tuple[tuple[int, float], ...]:
        """Of each (re)start the first step that it wrote (-1: none), and when it was, in seconds since 1970."""
        return tuple((min((c.step for c in s.commits), default=-1), s.started) for s in self._segments)

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps that have records."""
        return tuple(sorted({c.step for c in self._commits if c.rows}))

    @property
    def complete_steps(self) -> tuple[int, ...]:
        """The steps whose end was recorded; a killed process may leave one more, in part."""
        return tuple(sorted({c.step for c in self._commits if c.complete and c.rows}))

    @property
    def num_records(self) -> int:
        """How many records there are, without reading them."""
        return sum(c.rows for c in self._commits)

    @property
    def num_superseded(self) -> int:
        """How many records a restart has superseded."""
        return sum(c.rows for s in self._segments for c in s.commits) - self.num_records

    @cached_property
    def _ends(self) -> list[float]:
        """The step at which each segment was superseded; infinite when it was not."""
        return step_ends([segment.commits for segment in self._segments])

    @property
    def _commits(self) -> list[Commit]:
        return [c for end, s in zip(self._ends, self._segments, strict=True) for c in s.commits if c.step < end]

    @property
    def last_commit(self) -> float:
        """When the last batch was committed, in seconds since 1970."""
        return max([s.started for s in self._segments] + [c.time for s in self._segments for c in s.commits])

    @property
    def torn_batches(self) -> int:
        """How many committed batches a crash of the machine has torn; they are left out."""
        return sum(segment.torn_batches for segment in self._segments)

    @property
    def uncommitted_bytes(self) -> int:
        """How many bytes of records killed processes left without a commit; they are left out."""
        return sum(segment.uncommitted_bytes for segment in self._segments)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes by number."""
        return self._catalogue.nodes

    @property
    def node_paths(self) -> list[str]:
        """The paths of the nodes by number, quicker to have than ``nodes``."""
        return self._catalogue.node_paths

    @property
    def sites(self) -> SiteTable:
        """The sites by number, as columns."""
        return self._catalogue.sites

    @property
    def forms(self) -> tuple[Form, ...]:
        """The forms by number."""
        return self._catalogue.forms

    @property
    def stacks(self) -> list[tuple[str, ...]]:
        """The call stacks by number, innermost frame last."""
        return self._catalogue.stacks

    @property
    def edges(self) -> NDArray[np.int64]:
        """Source and target site of each data-flow edge, shape (n, 2)."""
        return self._catalogue.edges

    @property
    def edges_known_by(self) -> NDArray[np.uint8]:
        """How each edge is known, as a position in ``tuple(EdgeSource)``."""
        return self._catalogue.edges_known_by

    @cached_property
    def facts(self) -> list[Fact]:
        """Everything recorded that is no tensor."""
        return [
            Fact(f.step, f.micro_step, int(self._catalogue.node_numbers(i)[f.node]) if f.node >= 0 else -1, *rest)
            for i, segment in enumerate(self._segments)
            for f in segment.facts()
            if f.step < self._ends[i]
            for rest in [(f.kind, f.name, f.value)]
        ]

    @cached_property
    def events(self) -> list[Event]:
        """What happened to the recording."""
        return [event for segment in self._segments for event in segment.events()]

    @cached_property
    def records(self) -> dict[str, NDArray[Any]]:
        """The columns of ``core.records.RECORD_COLUMNS`` that any segment holds, and ``segment``.

        Sites and forms count rank-wide. ``seq``, ``tensor`` and ``rows`` count within a segment (a position in the
        list of starts). ``has`` tells which quantities a record holds; where one is absent, fillers stand in.
        """
        columns = record_columns(frozenset().union(*(s.what for s in self._segments)))
        parts = [self._segment_records(i, columns) for i in range(len(self._segments))]
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def record_stream(self) -> RecordStream:
        """Gives the batches that count, to be read piece by piece where all of ``records`` is too much."""
        batches, segments = [np.empty((0, 2 + PLACE_WIDTH), np.int64)], []
        for i, (end, reader) in enumerate(zip(self._ends, self._segments, strict=True)):
            steps = np.array([commit.step for commit in reader.commits], np.int64)
            rows = np.column_stack([np.full(len(steps), i), steps, reader.record_places()])
            batches.append(rows[steps < end])
            numbers = self._catalogue.site_numbers(i), self._catalogue.form_numbers(i)
            segments.append(SegmentRecords(reader.stored_records(), *numbers))
        return RecordStream(tuple(segments), np.concatenate(batches))

    def _segment_records(self, segment: int, columns: tuple[Column, ...]) -> dict[str, NDArray[Any]]:
        reader, numbers = self._segments[segment], self._catalogue
        records = translated(
            reader.columns("records"), columns, numbers.site_numbers(segment), numbers.form_numbers(segment)
        )
        records["segment"] = np.full(len(records["seq"]), segment, np.uint16)
        if self._ends[segment] == np.inf:
            return records
        kept = [commit.step < self._ends[segment] for commit in reader.commits]
        rows = np.repeat(kept, [commit.rows for commit in reader.commits])
        return {name: values[rows] for name, values in records.items()}

    def tensor_bits(self, index: int) -> tuple[str, NDArray[np.uint8]] | None:
        """Gives format and exact bytes of the tensor that record row ``index`` refers to; None when not saved."""
        seq = int(self.records["tensor"][index])
        if seq < 0 and self.records["has"][index] & HAS["tensors"]:
            seq = int(self.records["seq"][index])  # of a segment that keeps no tensors else: under its own number
        reader = self._segments[int(self.records["segment"][index])]
        stored = reader.stored(layout.TENSORS_FOLDER, seq, str(seq)) if seq >= 0 else None
        return None if stored is None else (stored.dtype, np.asarray(stored.data))

    def tensor(self, index: int) -> NDArray[Any] | None:
        """Gives the values of the tensor that record row ``index`` refers to; None when not saved.

        bf16 and fp8 come as float32, complex32 as complex64, all exactly.
        """
        bits = self.tensor_bits(index)
        if bits is None:
            return None
        return decode(bits[0], self.forms[int(self.records["form"][index])].shape, bits[1])

    def row_statistics(self, index: int) -> dict[str, NDArray[Any]] | None:
        """Gives the row statistics of record row ``index``; None when there are none."""
        seq = int(self.records["rows"][index]) if "rows" in self.records else -1
        reader = self._segments[int(self.records["segment"][index])]
        columns: dict[str, NDArray[Any]] = {}
        for key in reader.stored_keys(layout.ROWS_FOLDER, seq) if seq >= 0 else ():
            stored = reader.stored(layout.ROWS_FOLDER, seq, key)
            if stored is not None and key.partition(".")[2] not in VECTORS:
                columns[key.partition(".")[2]] = decode(stored.dtype, stored.shape, np.asarray(stored.data))
        return columns or None

    def content_vectors(self, index: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]] | None:
        """Gives the content sums of the rows and columns of record row ``index``; None when they were not recorded.

        A record of equal content and form may stand for it: tied parameters are measured once.
        """
        return self._vectors.find(index)

    @cached_property
    def _vectors(self) -> SavedVectors:
        return SavedVectors(self.records, self._segments)

    def table(self) -> dict[str, NDArray[Any]]:
        """Gives the records with the names of their sites and forms in place of numbers."""
        return tables.named(self)

    def __repr__(self) -> str:
        steps = _spans(self.steps, "step") if self.steps else "no steps"
        return f"<RankRun {self.path}: {steps}, {self.num_records:,} records>"


def _run_file(path: Path) -> Path:
    """Finds the file that makes a directory a run."""
    if not path.exists():
        raise RunError(f"{path}: no such directory")
    if not path.is_dir():
        raise RunError(f"{path}: a run is a directory, this is a file")
    file = path / layout.RUN_FILE
    if not file.exists():
        inner = sorted(p.parent.name for p in path.glob(f"*/{layout.RUN_FILE}"))
        hint = f"; did you mean {path / inner[0]}?" if inner else ""
        raise RunError(f"{path}: not a run (it has no {layout.RUN_FILE}){hint}")
    return file


def _spans(numbers: tuple[int, ...], noun: str = "rank") -> str:
    """Writes sorted numbers as ranges: "ranks 0-3, 6"."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    shown = [str(a) if a == b else f"{a}-{b}" for a, b in spans[:8]] + (["..."] if len(spans) > 8 else [])
    return f"{noun}{'s' if len(numbers) > 1 else ''} {', '.join(shown)}"
