"""One segment of one rank: the files that a process appends its batches to, all of a batch or nothing of it.

A batch is written in the order tensors, stacks, nodes, sites, forms, edges, facts, values, counts, checksums,
records, commit. Only the commit
makes it part of the run, so whatever a crash tears is not.
"""

from __future__ import annotations

import errno
import json
import os
import time
import zlib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.errors import RunError, RunVersionError
from msprobe.core.graph import EdgeSource
from msprobe.core.records import HAS, Status
from msprobe.core.run import layout
from msprobe.core.run.files import AppendFile, create_whole
from msprobe.core.run.packing import TABLES, Packing, Table
from msprobe.core.run.streams import Encoder
from msprobe.core.run.tensors import StoredTensor, shards, write_shard
from msprobe.core.sites import Direction, Role

if TYPE_CHECKING:
    from msprobe.core.run.batch import Batch, Event, RankInfo, RunHeader

_DIRECTION_CODES = {direction: code for code, direction in enumerate(Direction)}
_ROLE_CODES = {role: code for code, role in enumerate(Role)}
_KNOWN_BY_CODES = {known_by: code for code, known_by in enumerate(EdgeSource)}
_MOST_SEGMENTS = 9_999


class SegmentWriter:
    """Owns the files of one segment.

    Raises:
        RunError: The path holds something that is no run, or a run that this version must not write to.
        OSError: The files cannot be created.
    """

    def __init__(self, run: Path, *, rank: RankInfo, header: RunHeader, what: frozenset[str]) -> None:
        self._packing = Packing(what)
        self._storable = np.uint8(HAS["tensors"] + sum(HAS[name] for name in what if name != "tensors"))
        _create_run(run, header)
        self.folder = layout.rank_folder(run, rank.rank)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.number = _claim(self.folder, rank, header, what)
        tables = {**layout.CATALOGUE, **self._packing.fields}
        self._encoders = {name: Encoder(tables[name]) for name in layout.STREAM_FILES}
        names = (*layout.LINE_FILES, *layout.STREAM_FILES, "events", "commits")
        self._files = {name: AppendFile(layout.segment_path(self.folder, name, self.number)) for name in names}
        for name, encoder in self._encoders.items():
            self._files[name].append(encoder.header)
        self._counts = {"shards": 0, "stacks": 0, "values": 0}

    def append(self, batch: Batch) -> None:
        """Writes a batch without its events and commits it.

        Raises:
            OSError: Something could not be written; nothing of the batch is part of the run then.
        """
        if self._files["commits"].deleted:
            raise OSError(errno.ENOENT, "the run's files were deleted while it was recorded", str(self.folder))
        lengths = {name: file.length for name, file in self._files.items()}
        written: list[Path] = []
        try:
            saved = self._save(batch, written)
            records, num_values = self._pack(batch)
            payloads = self._encode(batch, records)
            for name, payload in payloads.items():
                self._files[name].append(payload)
            self._commit(batch, payloads, saved)
        except BaseException:  # whatever stops the append, half of it must not stay; it is raised again
            self._take_back(lengths, written)
            raise
        self._counts["stacks"] += len(batch.stacks)
        self._counts["values"] += num_values

    def note(self, events: Iterable[Event]) -> None:
        """Writes events; they need no commit, a whole line is valid.

        Raises:
            OSError: They could not be written.
        """
        lines = [_line(_members(event)) for event in events]
        if lines:
            self._files["events"].append(b"".join(lines))

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _save(self, batch: Batch, written: list[Path]) -> dict[str, list[list[Any]]]:
        """Writes the shards of a batch; gives, by kind, name and first and last seq of each."""
        tensors = [(t.seq, [StoredTensor(str(t.seq), t.dtype, t.shape, t.data)]) for t in batch.tensors]
        rows = [(r.seq, [_stored_column(r.seq, name, c) for name, c in r.columns.items()]) for r in batch.rows]
        saved: dict[str, list[list[Any]]] = {}
        for kind, entries in ((layout.TENSORS_FOLDER, tensors), (layout.ROWS_FOLDER, rows)):
            for group in shards([stored for _, parts in entries for stored in parts]):
                seqs = [int(stored.key.partition(".")[0]) for stored in group]
                name = layout.shard_name(self.number, batch.step, self._counts["shards"])
                self._counts["shards"] += 1
                folder = self.folder / kind
                folder.mkdir(exist_ok=True)
                write_shard(folder / name, group)
                written.append(folder / name)
                saved.setdefault(kind, []).append([name, min(seqs), max(seqs)])
        return saved

    def _encode(self, batch: Batch, records: dict[str, Table]) -> dict[str, bytes]:
        """Gives what each file grows by, in the order of writing; files that do not grow are left out."""
        first = self._counts["stacks"]
        lines = {
            "stacks": [_line({"stack": first + i, "frames": frames}) for i, frames in enumerate(batch.stacks)],
            "facts": [_line(_members(fact)) for fact in batch.facts],
        }
        tables: dict[str, Table] = {n: (_ENCODED[n](getattr(batch, n)), len(getattr(batch, n))) for n in _ENCODED}
        tables |= {name: records[name] for name in TABLES}
        payloads = {"stacks": b"".join(lines["stacks"])}
        for name, (columns, length) in tables.items():
            if name == TABLES[0]:
                payloads["facts"] = b"".join(lines["facts"])
            payloads[name] = self._encoders[name].encode(columns, length) if length else b""
        return {name: payload for name, payload in payloads.items() if payload}

    def _pack(self, batch: Batch) -> tuple[dict[str, Table], int]:
        records, length = dict(batch.records), len(batch)
        if length and not np.array_equal(records["seq"], int(records["seq"][0]) + np.arange(length)):
            raise ValueError("the records of a batch must be numbered one after the other")
        if "has" in records:
            records["has"] = np.asarray(records["has"]).astype(np.uint8) & self._storable
        return self._packing.pack(records, length, self._counts["values"])

    def _commit(self, batch: Batch, payloads: dict[str, bytes], saved: dict[str, list[list[Any]]]) -> None:
        commit = {
            "step": batch.step,
            "complete": batch.complete,
            "rows": len(batch),
            "first": {"seq": int(batch.records["seq"][0]) if len(batch) else 0, "values": self._counts["values"]},
            "time": time.time(),
            "ends": {name: self._files[name].length for name in (*layout.LINE_FILES, *layout.STREAM_FILES)},
            "bytes": {name: len(payload) for name, payload in payloads.items()},
            "crcs": {name: zlib.crc32(payload) for name, payload in payloads.items()},
            "shards": saved,
        }
        self._files["commits"].append(_line(commit))

    def _take_back(self, lengths: dict[str, int], written: Sequence[Path]) -> None:
        for name, length in lengths.items():
            if self._files[name].length != length:
                with suppress(OSError):  # the file tries again before it is appended to
                    self._files[name].cut(length)
        for path in written:
            with suppress(OSError):
                path.unlink(missing_ok=True)


def _stored_column(seq: int, name: str, column: Any) -> StoredTensor:
    format_ = {"float64": "fp64", "float32": "fp32", "float16": "fp16"}.get(column.dtype.name, column.dtype.name)
    return StoredTensor(f"{seq}.{name}", format_, column.shape, np.ascontiguousarray(column))


_ENCODED: dict[str, Any] = {
    "nodes": lambda nodes: {
        "path": [n.path for n in nodes],
        "kind": [n.kind.value for n in nodes],
        "class_name": [n.class_name for n in nodes],
        "parent": [n.parent for n in nodes],
        "api": [n.api for n in nodes],
    },
    "sites": lambda sites: {
        "node": [s.node for s in sites],
        "direction": [_DIRECTION_CODES[s.direction] for s in sites],
        "role": [_ROLE_CODES[s.role] for s in sites],
        "argument": [s.argument for s in sites],
        "call": [s.call for s in sites],
        "stack": [s.stack for s in sites],
    },
    "forms": lambda forms: {
        "dtype": [f.dtype for f in forms],
        "shape": [f.shape for f in forms],
        "kind": [f.kind for f in forms],
        "layout": [f.layout for f in forms],
    },
    "edges": lambda edges: {
        "source": [e[0] for e in edges],
        "target": [e[1] for e in edges],
        "known_by": [_KNOWN_BY_CODES[e[2]] for e in edges],
    },
}


def _line(value: dict[str, Any]) -> bytes:
    """Gives one line of JSON; what JSON cannot hold is written as its repr."""
    try:
        return json.dumps(value, default=_described, separators=(",", ":")).encode() + b"\n"
    except (TypeError, ValueError, RecursionError):  # keys of other types, values that contain themselves
        return json.dumps({k: _plain(v) for k, v in value.items()}, separators=(",", ":")).encode() + b"\n"


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, type(None))) else _described(value)


def _described(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 -- the user's __repr__
        return f"<{type(value).__name__} without a repr>"


def _members(value: Any) -> dict[str, Any]:
    """Gives the fields of a dataclass as they are; ``asdict`` would copy what it meets, and some cannot be copied."""
    return {f.name: getattr(value, f.name) for f in fields(value)}


def _create_run(run: Path, header: RunHeader) -> None:
    """Makes the path a run directory, or checks that it is one that may be written to."""
    if run.is_file():
        raise RunError(f"{run}: is a file; give a new or empty directory")
    run.mkdir(parents=True, exist_ok=True)
    names = [entry.name for entry in run.iterdir()]
    strangers = [name for name in names if name not in layout.RUN_ENTRIES and not name.startswith(".run.json-")]
    if not (run / layout.RUN_FILE).exists() and strangers:
        raise RunError(f"{run}: holds {strangers[0]!r} and no run; give a new or empty directory")
    content = {
        "format": layout.RUN_FORMAT,
        "schema": layout.SCHEMA_VERSION,
        "started": time.time(),
        "header": _members(header),
    }
    if not create_whole(run / layout.RUN_FILE, _line(content).decode()):
        _check_version(run / layout.RUN_FILE)


def _check_version(path: Path) -> None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        format_, schema = content["format"], int(content["schema"])
    except (ValueError, KeyError, TypeError):
        format_, schema = "", 0
    if format_ != layout.RUN_FORMAT:
        raise RunError(f"{path}: was not written by msprobe; give a new or empty directory")
    if schema > layout.SCHEMA_VERSION:
        raise RunVersionError(
            f"{path}: a newer msprobe records here (schema {schema}, this one writes {layout.SCHEMA_VERSION}); "
            "give another directory or upgrade msprobe"
        )
    if schema < layout.SCHEMA_VERSION:
        raise RunVersionError(
            f"{path}: an older msprobe recorded here (schema {schema}, this one writes {layout.SCHEMA_VERSION}); "
            "give another directory"
        )


def _claim(folder: Path, rank: RankInfo, header: RunHeader, what: frozenset[str]) -> int:
    """Takes the next free segment number, against other processes too."""
    content = {
        "format": layout.SEGMENT_FORMAT,
        "schema": layout.SCHEMA_VERSION,
        "started": time.time(),
        "process": os.getpid(),
        "rank": _members(rank),
        "header": _members(header),
        "what": sorted(what),
        "codes": {
            "direction": [d.value for d in Direction],
            "role": [r.value for r in Role],
            "known_by": [k.value for k in EdgeSource],
            "status": [s.name.lower() for s in Status],
        },
    }
    for number in range(max(layout.segment_numbers(folder), default=0) + 1, _MOST_SEGMENTS + 1):
        if create_whole(layout.segment_path(folder, "segment", number), _line(content).decode()):
            return number
    raise RunError(f"{folder}: has {_MOST_SEGMENTS:,} segments; record into a new directory")
