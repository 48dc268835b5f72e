"""Reads one segment: what its process committed, no more.

The last batches of a killed process or a lost power supply may be torn or full of zeros. They are left out and
counted. A file that is damaged anywhere else is refused by name: a reader that skipped it would tell half of the truth.
"""

from __future__ import annotations

import json
import math
import zlib
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from msprobe.core.errors import RunError, RunVersionError
from msprobe.core.run import layout
from msprobe.core.run.batch import Event, Fact, RankInfo, RunHeader
from msprobe.core.run.packing import RECORDS, TABLES
from msprobe.core.run.record_stream import PLACE_WIDTH, StoredRecords
from msprobe.core.run.streams import Encoder, Values, decode
from msprobe.core.run.tensors import Shard, StoredTensor

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DataclassT = TypeVar("_DataclassT")


@dataclass(frozen=True, slots=True)
class Commit:
    """One committed batch: which step, how many records, and what each file grew by."""

    step: int
    complete: bool
    rows: int
    time: float
    #: Length of each file after the batch; number and CRC-32 of the bytes that the batch added.
    ends: Mapping[str, int]
    bytes: Mapping[str, int]
    crcs: Mapping[str, int]
    #: By kind, the shards: name, first and last seq.
    shards: Mapping[str, list[tuple[str, int, int]]] = field(default_factory=dict)
    #: Numbers of the first record and of the first row of values.
    first: Mapping[str, int] = field(default_factory=dict)


def from_members(cls: type[_DataclassT], members: Mapping[str, Any]) -> _DataclassT:
    """Makes a dataclass from JSON, leaving out members that this version does not know."""
    known = {f.name: f for f in fields(cls) if f.name in members}  # type: ignore[arg-type]
    values = {name: members[name] for name in known}
    for name, member in known.items():
        if str(member.type).startswith("tuple"):  # JSON has lists only
            values[name] = tuple(values[name])
    return cls(**values)


def read_json(path: Path, format_: str) -> dict[str, Any]:
    """Reads the JSON file that starts a run or a segment.

    Raises:
        RunError: It is missing, damaged or something else.
        RunVersionError: A newer msprobe wrote it.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        found, schema = content["format"], int(content["schema"])
    except FileNotFoundError:
        raise RunError(f"{path}: missing; copy the run again") from None
    except OSError as error:
        raise RunError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path}: damaged or not written by msprobe; copy the run again") from error
    if found != format_:
        raise RunError(f"{path}: was not written by msprobe (format {found!r})")
    if schema > layout.SCHEMA_VERSION:
        raise RunVersionError(
            f"{path}: was written by a newer msprobe (schema {schema}, this one reads up to {layout.SCHEMA_VERSION}); "
            "upgrade it: pip install --upgrade msprobe"
        )
    if schema < layout.SCHEMA_VERSION:
        raise RunVersionError(
            f"{path}: was written by an older msprobe (schema {schema}, this one reads {layout.SCHEMA_VERSION}); "
            "read it with that version, or record the run again"
        )
    return dict(content)


def step_ends(segments: list[list[Commit]]) -> list[float]:
    """Gives, for the commits of each segment of a rank, the step from which on a later segment superseded it.

    A segment that has completed a step begins there anew. One that has completed none, but began at a step that an
    earlier one had completed, counts for nothing (its end is at minus infinity).
    """
    ends: list[float] = []
    end = math.inf
    for i in reversed(range(len(segments))):
        complete = [commit.step for commit in segments[i] if commit.complete and commit.rows]
        begun = min((commit.step for commit in segments[i]), default=math.inf)
        earlier = [c.step for commits in segments[:i] for c in commits if c.complete and c.rows and c.step < end]
        wasted = not complete and begun <= max(earlier, default=-math.inf)
        ends.append(-math.inf if wasted else end)
        end = min(end, *complete) if complete else end
    return ends[::-1]


class SegmentReader:
    """One segment of a rank. The sums of the first ``verified`` batches are not checked again."""

    def __init__(self, folder: Path, number: int, *, verified: int = 0) -> None:
        self.folder = folder
        self.number = number
        self._verified = verified
        content = read_json(layout.segment_path(folder, "segment", number), layout.SEGMENT_FORMAT)
        self.rank = from_members(RankInfo, content["rank"])
        self.header = from_members(RunHeader, content["header"])
        self.what = frozenset(content["what"])
        self.codes: Mapping[str, list[str]] = content["codes"]
        self.started = float(content["started"])
        self._opened: dict[Path, Shard] = {}

    @cached_property
    def commits(self) -> list[Commit]:
        """The batches that can be trusted."""
        listed = self._listed
        trusted = len(listed)
        for name in (*layout.LINE_FILES, *layout.STREAM_FILES):
            trusted = min(trusted, self._whole_batches(name, listed))
        return listed[:trusted]

    @property
    def torn_batches(self) -> int:
        """How many committed batches at the end are torn, as a power loss leaves them."""
        return len(self._listed) - len(self.commits)

    @property
    def uncommitted_bytes(self) -> int:
        """How many bytes of records follow the last batch that can be trusted."""
        path = layout.segment_path(self.folder, "records", self.number)
        if not path.exists():
            return 0
        header = self._listed[0].ends["records"] - self._listed[0].bytes.get("records", 0) if self._listed else 0
        return max(path.stat().st_size - (self.commits[-1].ends["records"] if self.commits else header), 0)

    def columns(self, table: str) -> dict[str, Values]:
        """Gives a table's columns, those of ``records`` as in ``core.records``; without any batch they are empty."""
        if table == RECORDS:
            return self.stored_records().read(self.record_places())
        columns = layout.CATALOGUE[table]
        if not self.commits:
            return decode(Encoder(columns).header, columns)
        try:
            return decode(self._committed(table), columns)
        except ValueError as error:
            raise RunError(f"{layout.segment_path(self.folder, table, self.number)}: damaged ({error})") from error

    def stored_records(self) -> StoredRecords:
        """The records as they lie on disk."""
        first = self.commits[0] if self.commits else None
        headers = {name: first.ends[name] - first.bytes.get(name, 0) if first else 0 for name in TABLES}
        return StoredRecords(self.folder, self.number, self.what, headers)

    def record_places(self) -> NDArray[np.int64]:
        """Gives where each batch's records are: a row for each commit, see ``record_stream.PLACE_WIDTH``."""
        places = [
            (
                c.rows,
                c.first["seq"],
                c.first["values"],
                *(e for t in TABLES for e in (c.ends[t] - c.bytes.get(t, 0), c.ends[t])),
            )
            for c in self.commits
        ]
        return np.array(places, np.int64).reshape(-1, PLACE_WIDTH)

    def stacks(self) -> list[tuple[str, ...]]:
        """Gives the stacks by number."""
        return [tuple(line["frames"]) for line in self._lines("stacks")]

    def facts(self) -> list[Fact]:
        """Gives the facts in the order in which they came up."""
        return [from_members(Fact, line) for line in self._lines("facts")]

    def events(self) -> list[Event]:
        """Gives the events; a whole line is valid without a commit."""
        path = layout.segment_path(self.folder, "events", self.number)
        data = path.read_bytes() if path.exists() else b""
        return [from_members(Event, line) for line in _whole_lines(path, data)]

    def stored(self, kind: str, seq: int, key: str) -> StoredTensor | None:
        """Gives what was saved in folder ``kind`` for a record, None when it was not."""
        for name, first, last in self._shards_near(kind, seq):
            if first <= seq <= last:
                found = self._open(self.folder / kind / name).read(key)
                if found is not None:
                    return found
        return None

    def stored_keys(self, kind: str, seq: int) -> list[str]:
        """Lists what was saved in folder ``kind`` for a record as ``seq.name``."""
        names = [name for name, first, last in self._shards_near(kind, seq) if first <= seq <= last]
        keys = [key for name in names for key in self._open(self.folder / kind / name).keys]
        return [key for key in keys if key.partition(".")[0] == str(seq)]

    def _shards_near(self, kind: str, seq: int) -> list[tuple[str, int, int]]:
        listed = self._shards.get(kind, [])
        return listed[: bisect_right([first for _, first, _ in listed], seq)][::-1]

    @cached_property
    def _shards(self) -> dict[str, list[tuple[str, int, int]]]:
        shards: dict[str, list[tuple[str, int, int]]] = {}
        for commit in self.commits:
            for kind, listed in commit.shards.items():
                shards.setdefault(kind, []).extend((name, first, last) for name, first, last in listed)
        return {kind: sorted(listed, key=lambda shard: shard[1]) for kind, listed in shards.items()}

    def _open(self, path: Path) -> Shard:
        if path not in self._opened:
            self._opened[path] = Shard(path)
        return self._opened[path]

    def _lines(self, name: str) -> list[dict[str, Any]]:
        if not self.commits:
            return []
        return _whole_lines(layout.segment_path(self.folder, name, self.number), self._committed(name))

    @cached_property
    def _listed(self) -> list[Commit]:
        path = layout.segment_path(self.folder, "commits", self.number)
        if not path.exists():
            return []
        try:
            return [from_members(Commit, line) for line in _whole_lines(path, path.read_bytes())]
        except TypeError as error:
            raise RunError(f"{path}: damaged ({error})") from error

    def _whole_batches(self, name: str, commits: list[Commit]) -> int:
        """Counts the batches from the start that are as they were written in one file."""
        if not commits:
            return 0
        path = layout.segment_path(self.folder, name, self.number)
        try:
            file = path.open("rb")
        except OSError as error:
            raise RunError(f"{path}: cannot be read: {error.strerror}; copy the run again") from error
        with file:
            length = path.stat().st_size
            for i, commit in enumerate(commits):
                if i < self._verified or name not in commit.crcs:
                    continue
                end = commit.ends[name]
                advice = f"copy it again, or keep the first {i} lines of {self._commits_name} to read what is whole"
                if end > length:
                    raise RunError(f"{path}: cut short: {length:,} bytes, batch {i + 1} ends at {end:,}; {advice}")
                file.seek(end - commit.bytes[name])
                if zlib.crc32(file.read(commit.bytes[name])) == commit.crcs[name]:
                    continue
                file.seek(end - 1)
                if not file.read().strip(b"\0"):
                    return i
                raise RunError(f"{path}: damaged: batch {i + 1} of {len(commits)} is not as it was written; {advice}")
        return len(commits)

    @property
    def _commits_name(self) -> str:
        return layout.segment_path(self.folder, "commits", self.number).name

    def _committed(self, name: str) -> bytes:
        with layout.segment_path(self.folder, name, self.number).open("rb") as file:
            return file.read(self.commits[-1].ends[name])


def _whole_lines(path: Path, data: bytes) -> list[dict[str, Any]]:
    """Reads lines of JSON; torn or zeroed ones at the end are left out."""
    lines = data.split(b"\n")[:-1]
    whole: list[dict[str, Any]] = []
    for i, line in enumerate(lines):
        try:
            whole.append(json.loads(line))
        except ValueError as error:
            if any(rest.strip(b"\0") for rest in lines[i + 1 :]):
                raise RunError(f"{path}: line {i + 1} is damaged; copy the run again") from error
            break
    return whole
