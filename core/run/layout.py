"""Names, tables and version of the run on disk. ``docs/format.md`` tells the same to readers without msprobe.

Everything that grows is one file per rank, table and segment; a segment is one process's recording. Nothing is
appended to a file by a second process, so a torn tail of a killed process stays the last thing in its file.
"""

from __future__ import annotations

from pathlib import Path

from msprobe.core.run import packing
from msprobe.core.run.streams import Field

#: Goes up when a reader of the version before would read something wrong or not at all.
SCHEMA_VERSION = 2
RUN_FORMAT = "msprobe-run"
SEGMENT_FORMAT = "msprobe-segment"

RUN_FILE = "run.json"
RANKS_FOLDER = "ranks"
TENSORS_FOLDER = "tensors"
ROWS_FOLDER = "rows"
#: What may lie in a run directory; anything else in a directory without ``run.json`` is somebody else's.
RUN_ENTRIES = (RUN_FILE, RANKS_FOLDER, "index", "control")

#: The catalogue's tables. Codes of direction, role and known_by are explained by the segment's file.
CATALOGUE: dict[str, tuple[Field, ...]] = {
    "nodes": (
        Field("path", "text"),
        Field("kind", "text"),
        Field("class_name", "text"),
        Field("parent", "text", nullable=True),
        Field("api", "text"),
    ),
    "sites": (
        Field("node", "uint32"),
        Field("direction", "uint8"),
        Field("role", "uint8"),
        Field("argument", "text"),
        Field("call", "int32"),
        Field("stack", "int32"),
    ),
    "forms": (
        Field("dtype", "text"),
        Field("shape", "integers"),
        Field("kind", "text"),
        Field("layout", "text"),
    ),
    "edges": (
        Field("source", "uint32"),
        Field("target", "uint32"),
        Field("known_by", "uint8"),
    ),
}

#: The files of a segment in the order in which a batch is written to them.
LINE_FILES = ("stacks", "facts")
STREAM_FILES = (*CATALOGUE, *packing.TABLES)


def rank_folder(run: Path, rank: int) -> Path:
    """Gives the folder of a rank."""
    return run / RANKS_FOLDER / f"{rank:05d}"


def segment_path(folder: Path, table: str, segment: int) -> Path:
    """Gives the file of a table, "segment", "events" or "commits" in a rank's folder."""
    if table in STREAM_FILES:
        return folder / f"{table}-{segment:04d}.arrows"
    if table == "commits":
        return folder / f"commits-{segment:04d}"
    return folder / f"{table}-{segment:04d}.{'json' if table == 'segment' else 'jsonl'}"


def segment_numbers(folder: Path) -> list[int]:
    """Lists the segments that a rank's folder holds, in order."""
    return sorted(int(p.stem[-4:]) for p in folder.glob("segment-[0-9][0-9][0-9][0-9].json"))


def shard_name(segment: int, step: int, number: int) -> str:
    """Gives the name of a shard of saved tensors or rows; ``number`` counts the segment's shards."""
    return f"{segment:04d}-step-{step:06d}-{number:05d}.safetensors"
