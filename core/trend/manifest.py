"""The index's table of contents: which files make it up and how far each rank's recording has been taken in."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from msprobe.core.trend.circumstances import Circumstances, from_json

INDEX_FOLDER = "index"
TREND_FOLDER = "trend"
_FORMAT = "msprobe-index"
#: Goes up when an index of the version before must be built anew.
SCHEMA_VERSION = 2
_MANIFEST = "manifest.json"
_LOCK = "lock"


@dataclass(frozen=True, slots=True)
class Tile:
    """One file of cells, sorted by (site, step, rank): the ranks ``first_rank`` to ``last_rank`` of a block."""

    file: str
    first_rank: int
    last_rank: int
    rows: int


@dataclass(frozen=True, slots=True)
class Block:
    """The steps from ``first`` to ``last``: tiles, and a file for each roll-up."""

    first: int
    last: int
    rows: int
    tiles: tuple[Tile, ...]
    over_ranks: str
    over_steps: str
    over_sites: str

    @property
    def files(self) -> tuple[str, ...]:
        """All files of the block."""
        return (*(tile.file for tile in self.tiles), self.over_ranks, self.over_steps, self.over_sites)


@dataclass(frozen=True, slots=True)
class Manifest:
    """``positions``: for each rank, for each of its segments, the number of batches and of records taken in."""

    generation: int = 0
    #: When the run that it was made of started: another run in the same place makes it stale.
    started: float = 0.0
    positions: Mapping[str, list[list[int]]] = field(default_factory=dict)
    #: For each rank, the number of facts taken in.
    facts: Mapping[str, int] = field(default_factory=dict)
    #: For each rank, what tells that it has not grown (``circumstances.signature_of``), and its circumstances.
    signatures: Mapping[str, int] = field(default_factory=dict)
    ranks: tuple[Circumstances, ...] = ()
    blocks: tuple[Block, ...] = ()
    sites: str = ""
    edges: str = ""

    @property
    def files(self) -> set[str]:
        """All files that belong to the index."""
        return {name for block in self.blocks for name in block.files} | {self.sites, self.edges}

    @property
    def rows(self) -> int:
        """How many cells the index holds."""
        return sum(block.rows for block in self.blocks)


def read_manifest(folder: Path) -> Manifest:
    """Reads the manifest; an empty one when there is none, it is damaged, of another version, or files are missing."""
    try:
        content = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        if content.pop("format") != _FORMAT or content.pop("schema") != SCHEMA_VERSION:
            return Manifest()
        manifest = _from_json(content)
    except (OSError, ValueError, KeyError, TypeError):
        return Manifest()
    return manifest if all((folder / name).is_file() for name in manifest.files) else Manifest()


def _from_json(content: dict[str, Any]) -> Manifest:
    blocks = tuple(Block(**(b | {"tiles": tuple(Tile(**t) for t in b["tiles"])})) for b in content["blocks"])
    return replace(Manifest(**content), blocks=blocks, ranks=tuple(map(from_json, content["ranks"])))


def replace_manifest(folder: Path, manifest: Manifest) -> None:
    """Puts a manifest in the place of the one before, all at once, and removes files that neither of both names."""
    before = read_manifest(folder)
    aside = folder / f"{_MANIFEST}.part"
    aside.write_text(json.dumps({"format": _FORMAT, "schema": SCHEMA_VERSION, **asdict(manifest)}), encoding="utf-8")
    aside.replace(folder / _MANIFEST)
    kept = manifest.files | before.files | {_MANIFEST, _LOCK}
    for path in folder.iterdir():
        if path.name not in kept:
            with suppress(OSError):
                path.unlink()


@contextmanager
def one_writer(folder: Path) -> Iterator[bool]:
    """Holds the lock of an index; gives False when another process holds it. A killed holder holds nothing."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        yield True
        return
    with (folder / _LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def is_writable(folder: Path) -> bool:
    """Makes the folder if needed, and tells whether files can be written to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
