"""Write all pairs as CSV: full precision for programs, and harmless when a spreadsheet opens it.

A spreadsheet runs a cell that starts with ``=``, ``+``, ``-`` or ``@`` as a formula, and a name in a run can be chosen by
a stranger. So text (never a number) that starts so, or with a tab or line break, gets an apostrophe in front, as OWASP
advises. NaN is ``nan``, the infinities are ``inf`` and ``-inf``.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nanoarrow as na

from msprobe.core.parquet import arrow_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from msprobe.core.comparison import Comparison

#: First characters that make a cell a formula, or hide one behind white space.
_FORMULA = r"^[\s]*[=+\-@\t\r\n\x{FF1D}\x{FF0B}\x{FF0D}\x{FF20}]"


class Csv:
    """All pairs in full precision, safe to open in a spreadsheet."""

    name = "csv"
    file_name = "pairs.csv"
    summary = "All pairs in full precision, safe to open in a spreadsheet."

    def render(self, comparison: Comparison) -> bytes:
        """Gives the file: UTF-8, a heading, one line for each pair."""
        import duckdb

        with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
            path = Path(folder) / self.file_name
            connection.register("pairs", na.ArrayStream(arrow_table(comparison.pairs)))
            target = str(path).replace("'", "''")
            connection.execute(f"COPY (SELECT {_columns(comparison.pairs)} FROM pairs) TO '{target}' (HEADER)")
            return path.read_bytes()


def _columns(pairs: Mapping[str, NDArray[Any]]) -> str:
    return ", ".join(_harmless(name) if column.dtype.kind in "OU" else _quoted(name) for name, column in pairs.items())


def _harmless(name: str) -> str:
    column = _quoted(name)
    return (
        f"CASE WHEN regexp_matches({column}, '{_FORMULA}') THEN '''' || {column} ELSE {column} END AS {column}"
    )


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
