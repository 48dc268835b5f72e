"""Numbers that each rank counts from 0, made global where no fact tells them.

Where every pipeline stage holds a list of modules that starts at 0, the numbers are local: a stage's list goes on where
that of the stage before ends. Where every expert-parallel rank holds a list of experts that starts at 0, likewise.
Lists that are numbered globally start at 0 in one place only, and stay as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msprobe.core.sites import Node, NodeKind

if TYPE_CHECKING:
    from msprobe.core.merging.planning import Mesh

#: Lists whose path ends so hold experts.
_EXPERTS = ("experts", "local_experts")

#: For a list of modules: by place along an axis, the numbers that are held there.
_Held = dict[str, dict[int, set[int]]]


def global_numbers(nodes: Sequence[Sequence[Node]], meshes: Sequence[Mesh]) -> list[dict[str, str]]:
    """Gives, for each rank, the global paths of modules that it numbers locally.

    Args:
        nodes: The nodes of each rank.
        meshes: The rank's coordinate and size along each axis.
    """
    paths = [[node.path for node in own if node.kind is NodeKind.MODULE] for own in nodes]
    stages = _offsets(_held(paths, meshes, "pp", of_experts=False))
    experts = _offsets(_held(paths, meshes, "ep", of_experts=True))
    return [_renamed(own, mesh, stages, experts) for own, mesh in zip(paths, meshes, strict=True)]


def _held(paths: Sequence[Sequence[str]], meshes: Sequence[Mesh], axis: str, *, of_experts: bool) -> _Held:
    held: _Held = defaultdict(lambda: defaultdict(set))
    for own, mesh in zip(paths, meshes, strict=True):
        if axis not in mesh:
            continue
        for path in own:
            above, _, last = path.rpartition(".")
            if not last.isdecimal() or _is_experts(above) != of_experts:
                continue
            if of_experts or not any(part.isdecimal() for part in above.split(".")):
                held[above][mesh[axis][0]].add(int(last))
    return held


def _is_experts(path: str) -> bool:
    return path.rpartition(".")[2] in _EXPERTS


def _offsets(held: _Held) -> dict[str, dict[int, int]]:
    """Gives, for each list that is numbered locally, what is to be added at each place."""
    found: dict[str, dict[int, int]] = {}
    for path, by_place in held.items():
        if len(by_place) < 2 or any(min(numbers) != 0 for numbers in by_place.values()):
            continue
        total, found[path] = 0, {}
        for place in sorted(by_place):
            found[path][place] = total
            total += len(by_place[place])
    return found


def _renamed(
    paths: Sequence[str], mesh: Mesh, stages: Mapping[str, Mapping[int, int]], experts: Mapping[str, Mapping[int, int]]
) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in paths:
        above, _, last = path.rpartition(".")
        for axis, offsets in (("pp", stages), ("ep", experts)):
            added = offsets.get(above, {}).get(mesh.get(axis, (0, 1))[0], 0)
            if last.isdecimal() and (added or (axis == "ep" and above in offsets)):
                found[path] = f"{_moved(above, found)}.{int(last) + added}"
    return found


def _moved(path: str, renamed: Mapping[str, str]) -> str:
    """Gives the global path of a container: that of the nearest module above it that was renamed, and the rest."""
    head, rest = path, ""
    while head and head not in renamed:
        head, _, last = head.rpartition(".")
        rest = f".{last}{rest}" if head or last else rest
    return f"{renamed[head]}{rest}" if head else path
