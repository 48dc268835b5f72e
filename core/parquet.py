"""Write a table of NumPy columns as a Parquet file, through DuckDB."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def write_parquet(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    """Writes the columns, aside and renamed: a reader never sees half a file."""
    import duckdb

    aside = path.with_name(path.name + ".part")
    with duckdb.connect() as connection:
        # DuckDB scans NumPy columns of a registered dict; object columns of str become VARCHAR.
        connection.register("pairs", {name: _plain(column) for name, column in columns.items()})
        target = str(aside).replace("'", "''")
        connection.execute(f"COPY pairs TO '{target}' (FORMAT parquet, COMPRESSION zstd)")
    aside.replace(path)


def _plain(column: NDArray[Any]) -> NDArray[Any]:
    return column.astype(object) if column.dtype.kind == "U" else np.ascontiguousarray(column)
