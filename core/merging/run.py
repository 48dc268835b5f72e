"""A whole run, merged: one rank that all ranks are seen as."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from msprobe.core.errors import RunError
from msprobe.core.merging.parallel import Parallel, meshes_of
from msprobe.core.merging.view import MergedRank

if TYPE_CHECKING:
    from pathlib import Path

    from msprobe.core.merging.planning import Mesh
    from msprobe.core.run.batch import RunHeader
    from msprobe.core.run.reader import Run


class MergedRun:
    """A run seen as if one rank had recorded it. Reads like a ``Run``; rank 0 is all of them."""

    ranks: tuple[int, ...] = (0,)

    def __init__(self, run: Run, parallel: Parallel | None = None, *, meshes: Mapping[int, Mesh] | None = None) -> None:
        self.source = run
        self.meshes: Mapping[int, Mesh] = meshes_of(run, parallel) if meshes is None else meshes
        self._parallel = parallel or Parallel()

    @property
    def path(self) -> Path:
        """The directory of the run that is merged."""
        return self.source.path

    @property
    def header(self) -> RunHeader:
        """The header of the run that is merged."""
        return self.source.header

    @property
    def started(self) -> float:
        """When recording started, in seconds since 1970."""
        return self.source.started

    @cached_property
    def merged(self) -> MergedRank:
        """All ranks as one."""
        return MergedRank(
            self.source, meshes=self.meshes, rules=self._parallel.rules_for, virtual=self._parallel.virtual
        )

    def rank(self, rank: int) -> MergedRank:
        """Gives the one rank.

        Raises:
            RunError: Another one is asked for.
        """
        if rank != 0:
            raise RunError(f"{self.path}: seen as one, the run has no rank {rank}; it has rank 0")
        return self.merged

    @property
    def steps(self) -> tuple[int, ...]:
        """The steps that have records."""
        return self.source.steps

    @property
    def num_records(self) -> int:
        """How many records there are."""
        return self.merged.num_records

    @property
    def altered(self) -> bool:
        """Whether recording changed how the program computed."""
        return self.source.altered

    def __repr__(self) -> str:
        return f"<MergedRun {self.path}: {len(self.source.ranks)} ranks as one>"


def merge_run(run: Run, parallel: Parallel | None = None) -> MergedRun:
    """Gives a lazy view of a run in which the records of all ranks are records of the whole model.

    Args:
        run: The run.
        parallel: Mesh and rules for runs that recorded no layout; what was recorded goes first.

    Raises:
        LayoutError: The mesh is not known, or does not fit the run's ranks.
    """
    return MergedRun(run, parallel)
