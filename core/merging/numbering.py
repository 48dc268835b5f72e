"""Numbers that each rank counts from 0, made global where no fact tells them.

Where every pipeline stage holds a list of modules that starts at 0, the numbers are local: a stage's list goes on where
that of the stage before ends. Where every expert-parallel rank holds a list of experts that starts at 0, likewise.
Lists that are numbered globally start at 0 in one place only, and stay as they are.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from msprobe.core.merging.paths import moved, nearest
from msprobe.core.sites import Node, NodeKind

if TYPE_CHECKING:
    from msprobe.core.merging.planning import Mesh

#: Lists whose path ends so hold experts.
_EXPERTS = ("experts", "local_experts")

#: For a list of modules: by place along an axis, the numbers that are held there.
_Held = dict[str, dict[int, set[int]]]


@dataclass(frozen=True, slots=True)
class LocalNumbers:
    """Global paths of modules that a rank numbers locally, and the stages of its chunks of the model."""

    renamed: Mapping[str, str] = field(default_factory=dict)
    stages: Mapping[str, int] = field(default_factory=dict)


def global_numbers(nodes: Sequence[Sequence[Node]], meshes: Sequence[Mesh], virtual: int = 1) -> list[LocalNumbers]:
    """Gives, for each rank, what it numbers locally.

    Args:
        nodes: The nodes of each rank.
        meshes: The rank's coordinate and size along each axis.
        virtual: How many chunks of the model a pipeline rank holds: chunk c of rank r is stage c * ranks + r.
    """
    paths = [[node.path for node in own if node.kind is NodeKind.MODULE] for own in nodes]
    chunks = [_chunks(own, mesh, virtual) for own, mesh in zip(paths, meshes, strict=True)]
    layers: _Held = defaultdict(lambda: defaultdict(set))
    experts: _Held = defaultdict(lambda: defaultdict(set))
    for own, mesh, stages in zip(paths, meshes, chunks, strict=True):
        for path in own:
            chunk = nearest(path, stages)
            above, _, last = (moved(path, chunk, "") if chunk is not None else path).rpartition(".")
            if not last.isdecimal():
                continue
            if _is_experts(above) and "ep" in mesh:
                experts[path.rpartition(".")[0]][mesh["ep"][0]].add(int(last))
            elif chunk is not None and not any(part.isdecimal() for part in above.split(".")):
                layers[above][stages[chunk]].add(int(last))
    found = _offsets(layers), _offsets(experts)
    return [_numbers(own, mesh, stages, *found) for own, mesh, stages in zip(paths, meshes, chunks, strict=True)]


def _chunks(paths: Sequence[str], mesh: Mesh, virtual: int) -> dict[str, int]:
    """Gives the stage of each chunk of the model that a rank holds, by the path of its root."""
    if "pp" not in mesh:
        return {}
    coordinate, size = mesh["pp"]
    roots = sorted({path.partition(".")[0] for path in paths if path}, key=_natural)
    if virtual > 1 and len(roots) == virtual:
        return {root: chunk * size + coordinate for chunk, root in enumerate(roots)}
    return {"": coordinate}


def _natural(name: str) -> tuple[int, str]:
    digits = "".join(c for c in name if c.isdecimal())
    return (int(digits) if digits else 0, name)


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


def _numbers(
    paths: Sequence[str],
    mesh: Mesh,
    chunks: Mapping[str, int],
    layers: Mapping[str, Mapping[int, int]],
    experts: Mapping[str, Mapping[int, int]],
) -> LocalNumbers:
    renamed = {chunk: "" for chunk in chunks if chunk}
    for path in paths:
        chunk = nearest(path, chunks)
        above, _, last = path.rpartition(".")
        if not last.isdecimal():
            continue
        added = 0
        if above in experts:
            added = experts[above][mesh["ep"][0]]
        elif chunk is not None:
            added = layers.get(moved(above, chunk, ""), {}).get(chunks[chunk], 0)
        container = nearest(above, renamed)
        home = above if container is None else moved(above, container, renamed[container])
        if added or above in experts:
            renamed[path] = f"{home}.{int(last) + added}"
    return LocalNumbers(renamed, {chunk: stage for chunk, stage in chunks.items() if chunk})
