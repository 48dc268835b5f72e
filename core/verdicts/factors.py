"""What an exact factor between the two sides may be the number of: ranks along an axis, or micro-steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msprobe.core.placement import DATA_AXES
from msprobe.core.verdicts.ranks import merged_below

if TYPE_CHECKING:
    from collections.abc import Mapping

    from msprobe.core.matching.views import RankView
    from msprobe.core.verdicts.table import PairTable


def meaning(table: PairTable, factor: str, step: int) -> str:
    """Says what a factor (``2``, ``1/4``) is the size of: ``, the number of ranks along axis dp``; else "".

    Only sizes in which the two sides differ, or that both have, are looked at; data-parallel axes first.
    """
    number = factor.removeprefix("-").removeprefix("1/")
    if factor.startswith("-") or not number.isdecimal():
        return ""
    size = int(number)
    axes = [axis for axis, ranks in _sizes(table).items() if ranks == size]
    axes.sort(key=lambda axis: (axis not in DATA_AXES, axis))
    found = [f"the number of ranks along axis {axis}" for axis in axes]
    if size in _micro_steps(table, step):
        found.append("the number of micro-steps")
    return f", {' and '.join(found)}" if found else ""


def _sizes(table: PairTable) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for match in table.matches:
        for view in (match.reference, match.candidate):
            sizes |= {axis: size for mesh in _meshes(view) for axis, (_, size) in mesh.items() if size > 1}
    return sizes


def _meshes(view: RankView) -> list[Mapping[str, tuple[int, int]]]:
    merged = merged_below(view)
    if merged is not None:
        return list(merged.meshes.values())
    info = getattr(view, "info", None)
    return [{axis: (place[0], place[1]) for axis, place in info.mesh.items()}] if info is not None else []


def _micro_steps(table: PairTable, step: int) -> set[int]:
    at = table.step == step
    counts = set()
    for side in (table.candidate, table.reference):
        held = table.micro_step[at & side.present]
        if len(held):
            counts.add(int(held.max()) + 1)
    return counts - {1}
