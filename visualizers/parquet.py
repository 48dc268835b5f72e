"""Write all pairs as Parquet: typed, small, readable by DuckDB, pandas, Polars and Spark."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe.core.parquet import write_parquet

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison


class Parquet:
    """All pairs as a typed table."""

    name = "parquet"
    file_name = "pairs.parquet"
    summary = "All pairs as a typed table for DuckDB, pandas, Polars."

    def render(self, comparison: Comparison) -> bytes:
        """Gives the file."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / self.file_name
            write_parquet(path, comparison.pairs)
            return path.read_bytes()
