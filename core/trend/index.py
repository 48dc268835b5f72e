"""The index of a run: opens it, brings it up to date, answers.

It lies in RUN/index/trend. Where that cannot be written, it is made in a temporary folder and goes with the process.
"""

from __future__ import annotations

import shutil
import tempfile
import weakref
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.errors import TrendError
from msprobe.core.run.reader import Run, open_run
from msprobe.core.trend.compaction import BLOCK_ROWS, Compactor, read_catalogue
from msprobe.core.trend.kinds import kind_number
from msprobe.core.trend.manifest import (
    INDEX_FOLDER,
    TREND_FOLDER,
    Block,
    Manifest,
    is_writable,
    one_writer,
    read_manifest,
)
from msprobe.core.trend.slices import Query, Slice, cut
from msprobe.core.trend.store import Store

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.trend.global_sites import SiteCatalogue

__all__ = ["Query", "Slice", "TrendIndex", "open_index"]


def open_index(run: Run | Path | str, *, refresh: bool = True, block_rows: int = BLOCK_ROWS) -> TrendIndex:
    """Opens the index of a run and brings it up to date; with ``refresh`` False an existing one is taken as it is.

    While another process brings it up to date, what is there is opened.

    Raises:
        RunError: It is no run.
        TrendError: It holds no records.
    """
    opened = run if isinstance(run, Run) else open_run(run)
    folder: Path = opened.path / INDEX_FOLDER / TREND_FOLDER
    temporary: Path | None = None
    if not is_writable(folder):
        folder = temporary = Path(tempfile.mkdtemp(prefix="msprobe-index-"))
    manifest = read_manifest(folder)
    if refresh or not manifest.blocks:
        with one_writer(folder) as mine:
            if mine:
                manifest = Compactor(opened, folder, read_manifest(folder), block_rows=block_rows).refresh()
    if not manifest.blocks:
        raise TrendError(f"{opened.path}: holds no records yet, or another process is making its index; try again")
    return TrendIndex(opened, folder, manifest, temporary)


class TrendIndex:
    """What a run holds, ready for questions. Site numbers are global (``sites``), as in ``Query``."""

    def __init__(self, run: Run, folder: Path, manifest: Manifest, temporary: Path | None = None) -> None:
        self.run, self.path, self.folder, self.manifest = run, run.path, folder, manifest
        self.store = Store(folder)
        #: (step, site, rank) of cells in which NaN arose, shape (n, 3); the scan knows them (``mark_origins``).
        self.origins: NDArray[np.int64] = np.zeros((0, 3), np.int64)
        if temporary is not None:
            weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)

    @cached_property
    def sites(self) -> SiteCatalogue:
        """All sites with their tags."""
        return read_catalogue(self.store, self.manifest)

    @cached_property
    def steps(self) -> NDArray[np.int64]:
        """The steps that any rank has cells of, sorted."""
        found = self.store.read([block.over_sites for block in self.manifest.blocks], "DISTINCT step", "", [])
        return np.sort(found["step"])

    @cached_property
    def ranks(self) -> NDArray[np.int64]:
        """The ranks that have cells, sorted."""
        found = self.store.read([block.over_sites for block in self.manifest.blocks], "DISTINCT rank", "", [])
        return np.sort(found["rank"]).astype(np.int64)

    def blocks_of(self, steps: NDArray[np.int64]) -> list[Block]:
        """Gives the blocks that hold any of the steps."""
        blocks = self.manifest.blocks
        if not len(steps):
            return []
        return [b for b in blocks if bool(np.any((steps >= b.first) & (steps <= b.last)))]

    def find_sites(
        self, text: str = "", *, kind: str | None = None, layer: int | None = None, parameter_kind: str | None = None
    ) -> NDArray[np.int64]:
        """Gives the sites whose node, class or argument holds a text, with these tags, in order of execution."""
        sites, words = self.sites, text.lower()
        kept = np.ones(len(sites), bool)
        if words:
            kept = np.array([words in f"{sites.name(i)} {sites['class_name'][i]}".lower() for i in range(len(sites))])
        for name, wanted in (("layer", layer), ("parameter_kind", parameter_kind)):
            if wanted is not None:
                kept &= sites[name] == wanted
        if kind is not None:
            kept &= sites["kind"] == kind_number(kind)
        return sites.order[kept[sites.order]]

    def slice(self, query: Query) -> Slice:
        """Gives a picture.

        Raises:
            TrendError: What the query fixes is not in the run.
        """
        return cut(self, query)
