"""Compares two runs, with comparators by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.core.errors import PluginError
from msprobe.core.options import parse_option
from msprobe.plugins import plugin_table

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison
    from msprobe.core.matching.mapping import Mapping as Rules
    from msprobe.core.merging.rules import LayoutRule
    from msprobe.core.merging.run import MergedRun
    from msprobe.core.run.reader import Run


def compare(  # noqa: PLR0913  # one keyword for each option of the command line
    candidate: str | Path | Run,
    reference: str | Path | Run,
    *,
    noise: str | Path | Run | None = None,
    golden: str | Path | Run | None = None,
    mapping: str | Path | None = None,
    swap: bool = False,
    min_coverage: float | None = None,
    comparators: Sequence[str] | None = None,
    constants: str | Path | None = None,
    ranks: int | str | Iterable[int | str] = (),
    steps: int | str | Iterable[int | str | tuple[int, int | None]] = (),
    merge: bool | None = None,
    parallel: Mapping[str, str | int] | None = None,
    order: str = "",
    progress: bool = False,
) -> Comparison:
    """Compares a candidate run with a reference run and names the first tensor that is wrong.

    Args:
        candidate: The run in doubt.
        reference: The run that is trusted.
        noise: The reference once more, repeated, perturbed or in another precision: what differs there is no fault.
        golden: A run in high precision: is the candidate further from it than the reference is?
        mapping: A file that says which node is which, or the name of a ready mapping as ``msprobe plugins`` lists them.
        swap: Reads the mapping from reference to candidate.
        min_coverage: The share of pairs that must be judged; below, the verdict is inconclusive.
        comparators: Names as ``msprobe plugins`` lists them; None: all that can be used.
        constants: A file with other constants of the bounds.
        ranks: Only these ranks: ``"0,8-15"``; empty: all.
        steps: Only these steps: ``"0,5,10-20,100-"``; empty: all.
        merge: Compares as whole models, all ranks as one: always (True), never (False), or where the sides spread the
            work over ranks in different ways (None).
        parallel: Sizes of the mesh for a run that recorded none: ``{"tp": 8, "dp": 2}``; ``"8/1"`` is the candidate's
            and the reference's.
        order: The order in which its ranks count along the axes, the fastest first: ``"tp-cp-ep-dp-pp"``.
        progress: Shows a progress bar.

    Raises:
        MsprobeError: A run cannot be read, a mapping is wrong, or a comparator is unknown.
    """
    chosen = find_comparators(comparators)
    limits = {"ranks": parse_option("ranks", ranks), "steps": parse_option("steps", steps)}
    from msprobe.core.comparing import compare_runs
    from msprobe.core.merging.parallel import of_flags

    return compare_runs(
        candidate,
        reference,
        noise=noise,
        golden=golden,
        mapping=find_mapping(mapping),
        ready=ready_mappings(),
        swap=swap,
        min_coverage=min_coverage,
        comparators=chosen,
        constants=constants,
        merge=merge,
        parallel=of_flags({axis: str(size) for axis, size in (parallel or {}).items()}, order),
        layout_rules=find_layout_rules(),
        progress=progress,
        **limits,
    )


def find_comparators(names: Sequence[str] | None) -> list[Any]:
    """Gives the comparators by name; None gives all that lack nothing."""
    table = plugin_table()
    if names is None:
        names = [plugin.name for plugin in table.of_kind("comparators", usable=True)]
    return [table.get("comparators", name) for name in names]


def merge(run: str | Path | Run, *, parallel: Mapping[str, str | int] | None = None, order: str = "") -> MergedRun:
    """Sees a run of many ranks as that of one whole model; nothing is written, and nothing read before it is needed.

    ``merge(run).rank(0)`` reads like a rank of any run; its ``provenance(row)`` says what a record was made from.

    Args:
        run: The run, or its directory.
        parallel: Sizes of the mesh for a run that recorded none: ``{"tp": 8, "dp": 2}``.
        order: The order in which ranks count along the axes, the fastest first: ``"tp-cp-ep-dp-pp"``.

    Raises:
        MsprobeError: The run cannot be read, or how the work was spread over its ranks is not known.
    """
    from msprobe.core.merging.parallel import Parallel, of_flags
    from msprobe.core.merging.run import merge_run
    from msprobe.core.run.reader import open_run

    opened = open_run(run) if isinstance(run, str | Path) else run
    said = of_flags({axis: str(size) for axis, size in (parallel or {}).items()}, order)[0] or Parallel()
    return merge_run(opened, said.with_rules(find_layout_rules()))


def find_layout_rules() -> list[LayoutRule]:
    """Gives the layout rules of all plugins that can be used.

    Raises:
        PluginError: What a plugin brings are no layout rules.
    """
    from msprobe.core.merging.rules import LayoutRule

    table = plugin_table()
    found: list[LayoutRule] = []
    for plugin in table.of_kind("layouts", usable=True):
        rules = table.get("layouts", plugin.name).rules
        if not all(isinstance(rule, LayoutRule) for rule in rules):
            raise PluginError(f"layouts {plugin.name!r} of {plugin.origin}: rules must be LayoutRule objects.")
        found += rules
    return found


def find_mapping(mapping: str | Path | None) -> Path | Rules | None:
    """Gives the file of a mapping, or the ready mapping of that name.

    Raises:
        PluginError: It is neither a file nor the name of a ready mapping.
    """
    if mapping is None:
        return None
    path = Path(mapping)
    if path.suffix or path.exists():
        return path
    found: Rules = plugin_table().get("mappings", str(mapping)).mapping
    return found


def ready_mappings() -> list[Rules]:
    """Gives all ready mappings that can be used, each of which may be chosen by itself."""
    table = plugin_table()
    return [table.get("mappings", plugin.name).mapping for plugin in table.of_kind("mappings", usable=True)]
