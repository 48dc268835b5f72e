"""Write the summary as strict JSON, for programs.

JSON has no word for numbers that are not finite: they are the texts ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``,
which ``float()`` of Python and ``Number()`` of JavaScript turn back. All pairs are in the Parquet file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison


class Json:
    """The summary, with a schema version, as strict JSON."""

    name = "json"
    file_name = "summary.json"
    summary = "The summary, with a schema version, as strict JSON."

    def render(self, comparison: Comparison) -> str:
        """Gives the document, with a final line break."""
        return comparison.summary_json() + "\n"
