"""Compares two runs, with comparators by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.plugins import plugin_table

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison


def compare(
    candidate: str | Path,
    reference: str | Path,
    *,
    comparators: Sequence[str] | None = None,
    **settings: Any,
) -> Comparison:
    """Compares a candidate run with a reference run.

    Args:
        candidate: The run in doubt.
        reference: The run that is trusted.
        comparators: Names as ``msprobe plugins`` lists them; None: all that can be used.
        settings: See ``msprobe.core.comparing.compare_runs``: ``noise``, ``golden``, ``mapping`` ...

    Raises:
        MsprobeError: A run cannot be read, a mapping is wrong, or a comparator is unknown.
    """
    from msprobe.core.comparing import compare_runs

    return compare_runs(candidate, reference, comparators=find_comparators(comparators), **settings)


def find_comparators(names: Sequence[str] | None) -> list[Any]:
    """Gives the comparators by name; None gives all that lack nothing."""
    table = plugin_table()
    if names is None:
        names = [plugin.name for plugin in table.of_kind("comparators", usable=True)]
    return [table.get("comparators", name) for name in names]
