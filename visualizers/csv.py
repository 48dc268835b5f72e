"""Write all pairs as CSV: full precision for programs, and harmless when a spreadsheet opens it.

A spreadsheet runs a cell that starts with ``=``, ``+``, ``-`` or ``@`` as a formula, and a name in a run can be chosen
by a stranger. So text (never a number) that starts so, or with a tab or line break, gets an apostrophe in front, as
OWASP advises. NaN is ``nan``, the infinities are ``inf`` and ``-inf``; what was not recorded or measured is empty.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nanoarrow as na
import numpy as np

from msprobe.core.comparison import SHOWN_STATISTICS
from msprobe.core.parquet import arrow_table
from msprobe.visualizers.rows import encode

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.comparison import Comparison

#: First characters that make a cell a formula, or hide one behind white space; also in their full-width forms.
_FORMULA = re.compile("\\s*[=+\\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")


class Csv:
    """All pairs in full precision, safe to open in a spreadsheet."""

    name = "csv"
    file_name = "pairs.csv"
    summary = "All pairs in full precision, safe to open in a spreadsheet."

    def render(self, comparison: Comparison) -> bytes:
        """Gives the file: UTF-8, a heading, one line for each pair."""
        import duckdb

        pairs = {name: _harmless(column) for name, column in comparison.pairs.items()}
        cells = ", ".join(f"{_cell(name)} AS {_quoted(name)}" for name in pairs)
        with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
            path = Path(folder) / self.file_name
            connection.register("pairs", na.ArrayStream(arrow_table(pairs)))
            target = str(path).replace("'", "''")
            connection.execute(f"COPY (SELECT {cells} FROM pairs) TO '{target}' (HEADER)")
            return path.read_bytes()


def _harmless(column: NDArray[Any]) -> NDArray[Any]:
    """Puts an apostrophe before texts that a spreadsheet would run; each distinct text is looked at once."""
    if column.dtype.kind not in "OU":
        return column
    texts, codes = encode(column)
    safe = [f"'{text}" if _FORMULA.match(text) else text for text in texts]
    return np.array(safe, dtype=object)[codes] if safe else column


def _cell(name: str) -> str:
    """Gives the SQL expression of a column's cells: empty where nothing was recorded, measured or known."""
    side, _, statistic = name.partition("_")
    if side in ("candidate", "reference") and statistic in SHOWN_STATISTICS:
        return f"CASE WHEN {side}_nan < 0 THEN NULL ELSE {_quoted(name)} END"
    if name in ("error", "error_eps"):
        return f"CASE WHEN error_kind = '' THEN NULL ELSE {name} END"
    if name == "bound":
        return "CASE WHEN isnan(bound) THEN NULL ELSE bound END"
    return _quoted(name)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
