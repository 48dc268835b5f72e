"""Runs of the layouts, each trained once for all tests that look at it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import msprobe
from tests.parallel.launching import run_layout

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison


class Runs:
    """Trains layouts when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: dict[str, Path] = {}

    def __call__(self, name: str, fault: str | None = None, **settings: Any) -> Path:
        key = f"{name} {fault or ''} {settings}"
        if key not in self._made:
            path = self._folder / f"run_{len(self._made)}"
            self._made[key] = run_layout(name, path, fault, **settings)
        return self._made[key]

    def compared(
        self, name: str, fault: str | None = None, *, reference: str = "single", **settings: Any
    ) -> Comparison:
        """Compares a layout with the whole model in one process."""
        return msprobe.compare(self(name, fault, **settings), self(reference, **settings))


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("layouts"))
