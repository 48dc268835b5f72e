"""Where batches go: a run writer that is made once it is certain which rank this process is."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

import torch

from msprobe.core.errors import MsprobeError, RunError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from msprobe.core.run.batch import Batch, RankInfo
    from msprobe.core.run.writer import RunWriter


class Destination:
    """Stands for the writer of a run.

    A program may start recording before ``torch.distributed`` knows its rank. Then the writer is made when the first
    batch arrives; what is plainly wrong with the path is told at once all the same.

    Raises:
        RunError: The path holds something that is no run.
    """

    def __init__(self, path: Path, make: Callable[[], RunWriter]) -> None:
        self._make = make
        self._writer: RunWriter | None = None
        self._failure: str | None = None
        if _rank_is_known():
            self._writer = make()
        elif path.is_file():
            raise RunError(f"{path}: is a file; give a new or empty directory")
        elif path.is_dir() and any(path.iterdir()) and not (path / "run.json").is_file():
            raise RunError(f"{path}: holds files and no run; give a new or empty directory")

    @property
    def failure(self) -> str | None:
        """Why nothing is written at the moment; None while all is well."""
        return self._writer.failure if self._writer is not None else self._failure

    @property
    def rank(self) -> RankInfo | None:
        """Who records; None while that is not known."""
        return self._writer.rank if self._writer is not None else None

    def submit(self, batch: Batch) -> None:
        """Hands over a batch; never raises."""
        self._begin()
        if self._writer is not None:
            self._writer.submit(batch)

    def flush(self, timeout: float | None = None) -> bool:
        """Waits until everything submitted is committed."""
        return self._writer.flush(timeout) if self._writer is not None else self._failure is None

    def close(self) -> None:
        """Ends the run; one in which nothing was recorded is a run all the same."""
        self._begin()
        if self._writer is not None:
            self._writer.close()

    def _begin(self) -> None:
        if self._writer is not None or self._failure is not None:
            return
        try:
            self._writer = self._make()
        except MsprobeError as error:
            self._failure = str(error)
            warnings.warn(f"msprobe: nothing is recorded: {error}", RuntimeWarning, stacklevel=2)


def _rank_is_known() -> bool:
    distributed = torch.distributed
    return not distributed.is_available() or distributed.is_initialized() or "RANK" in os.environ
