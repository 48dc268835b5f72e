"""Writes a comparison into a folder, and never over files of others."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe.core.errors import ComparisonError
from msprobe.plugins import plugin_table

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison

#: A folder that holds this file is one that we wrote.
_OURS = "summary.json"


def check_output_directory(out: Path) -> None:
    """Refuses a place that holds files of others.

    Raises:
        ComparisonError: The path is a file, or a folder that no comparison was written to before.
    """
    if out.exists() and not out.is_dir():
        raise ComparisonError(f"--out {out}: is a file. Name a folder.")
    if (out / "run.json").exists():
        raise ComparisonError(f"--out {out}: is a recorded run. Name another folder.")
    if out.is_dir() and any(out.iterdir()) and not (out / _OURS).is_file():
        raise ComparisonError(f"--out {out}: holds files that no comparison wrote. Name a new or empty folder.")


def write_outputs(comparison: Comparison, formats: Sequence[str], out: Path) -> list[Path]:
    """Writes the result's own files and one for each format that has one, and names them.

    Raises:
        ComparisonError: The folder cannot be written to.
    """
    table = plugin_table()
    try:
        written = list(comparison.save(out))
        for name in formats:
            visualizer = table.get("visualizers", name)
            if not visualizer.file_name or out / visualizer.file_name in written:
                continue
            written.append(out / visualizer.file_name)
            content = visualizer.render(comparison)
            written[-1].write_bytes(content if isinstance(content, bytes) else content.encode())
    except OSError as error:
        raise ComparisonError(f"--out {out}: cannot be written ({error.strerror}).") from error
    return written
