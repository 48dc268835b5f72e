"""Show a comparison as one line, for a status board."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison


class Headline:
    """The verdict as one line."""

    name = "headline"
    file_name = "headline.txt"

    def render(self, comparison: Comparison) -> str:
        """Gives the line."""
        return f"{comparison.summary.verdict.upper()}: {comparison.summary.sentence}\n"
