"""Write a table of NumPy columns as a Parquet file, through DuckDB.

The columns travel as Arrow: handed over as NumPy arrays, DuckDB would turn NaN into NULL, and "not a number" is not
"absent".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import nanoarrow as na
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray


def write_parquet(path: Path, columns: Mapping[str, NDArray[Any]]) -> None:
    """Writes the columns, aside and renamed: a reader never sees half a file."""
    import duckdb

    aside = path.with_name(path.name + ".part")
    with duckdb.connect() as connection:
        connection.register("table_of_columns", na.ArrayStream(arrow_table(columns)))
        target = str(aside).replace("'", "''")
        connection.execute(f"COPY table_of_columns TO '{target}' (FORMAT parquet, COMPRESSION zstd)")
    aside.replace(path)


def arrow_table(columns: Mapping[str, NDArray[Any]]) -> Any:
    """Gives the columns as one nanoarrow struct array; text columns (object or U) become strings."""
    arrays = {name: _arrow_column(column) for name, column in columns.items()}
    length = len(next(iter(arrays.values()))) if arrays else 0
    schema = na.struct({name: array.schema for name, array in arrays.items()})
    return na.c_array_from_buffers(schema, length, buffers=[None], children=list(arrays.values()))


def _arrow_column(column: NDArray[Any]) -> Any:
    if column.dtype.kind in "OU":
        texts = column.tolist()
        known = {text: str(text).encode() for text in set(texts)}
        encoded = [known[text] for text in texts]
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(item) for item in encoded], out=offsets[1:])
        return na.c_array_from_buffers(na.large_string(), len(encoded), buffers=[None, offsets, b"".join(encoded)])
    if column.dtype.kind == "b":
        column = column.astype(np.uint8)
    column = np.ascontiguousarray(column)
    return na.c_array_from_buffers(getattr(na, column.dtype.name)(), len(column), buffers=[None, column])
