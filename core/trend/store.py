"""DuckDB as the index uses it: one connection that can read the index's folder and nothing else.

No statement is made of text from outside: values are bound, and columns come from tables in this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.parquet import arrow_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ROW_GROUP = 16_384


class Store:
    """Reads Parquet files of one folder through a locked-down DuckDB."""

    def __init__(self, folder: Path, *, threads: int | None = None) -> None:
        import duckdb

        self.folder = folder
        self._connection = duckdb.connect(
            config={"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
        )
        self._connection.execute("SET parquet_metadata_cache = true")
        if threads is not None:
            self._connection.execute(f"SET threads = {int(threads)}")
        self._connection.execute("SET enable_progress_bar = false")
        self._connection.execute("SET allowed_directories = [$1]", [str(folder.absolute())])
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET lock_configuration = true")

    def read(self, files: Sequence[str], select: str, where: str, values: Sequence[Any]) -> dict[str, NDArray[Any]]:
        """Gives columns of the rows that fulfil a condition with bound values.

        ``select`` and ``where`` are written in this package, from allow-listed names only.
        """
        if not files:
            return {}
        paths = [str((self.folder / name).absolute()) for name in files]
        condition = f" WHERE {where}" if where else ""
        cursor = self._connection.cursor()
        try:
            found = cursor.execute(f"SELECT {select} FROM read_parquet(?){condition}", [paths, *values]).fetchnumpy()
        finally:
            cursor.close()
        return {name: _plain(column) for name, column in found.items()}

    def close(self) -> None:
        self._connection.close()


def _plain(column: Any) -> NDArray[Any]:
    """Takes the mask off; the files hold no NULL."""
    return np.asarray(column.data if isinstance(column, np.ma.MaskedArray) else column)


def write_sorted(connection: Any, path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    """Writes columns that are sorted already, in small groups of rows, so that a query reads few of them."""
    import nanoarrow as na

    connection.register("rows", na.ArrayStream(arrow_table(columns)))
    try:
        target = str(path).replace("'", "''")
        options = f"FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE {_ROW_GROUP}, PARQUET_VERSION v2"
        connection.execute(f"COPY rows TO '{target}' ({options})")
    finally:
        connection.unregister("rows")
