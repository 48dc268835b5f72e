"""What the user says of a run's parallel layout: sizes and order of the mesh, and how classes of layers are cut.

It speaks where nothing was recorded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from msprobe.core.errors import LayoutError
from msprobe.core.placement import AXES, Placement
from msprobe.core.sites import Direction, Role

if TYPE_CHECKING:
    from msprobe.core.merging.identity import WholeCatalogue
    from msprobe.core.merging.planning import Mesh, Rules
    from msprobe.core.merging.rules import LayoutRule
    from msprobe.core.run.reader import Run

#: The order in which ranks are numbered where none is given: the first axis counts fastest, as in Megatron-LM.
ORDER = ("tp", "cp", "ep", "fsdp", "dp", "pp")
#: Not an axis of its own: how many chunks of the model each rank along ``pp`` holds.
VIRTUAL = "vpp"


@dataclass(frozen=True, slots=True)
class Parallel:
    """Sizes of axes by name, the order in which ranks count (fastest first), and rules by class.

    ``virtual`` is the number of chunks of the model that a pipeline rank holds.
    """

    sizes: Mapping[str, int] = field(default_factory=dict)
    order: tuple[str, ...] = ()
    rules: tuple[LayoutRule, ...] = ()
    virtual: int = 1

    def __post_init__(self) -> None:
        for axis in (*self.sizes, *self.order):
            if axis not in AXES:
                raise LayoutError(f"no axis is called {axis!r}; the axes are {', '.join(AXES)}.")
        for axis, size in self.sizes.items():
            if size < 1:
                raise LayoutError(f"axis {axis} of size {size}: a size is at least 1.")
        if len(set(self.order)) != len(self.order):
            raise LayoutError(f"the order {'-'.join(self.order)} names an axis twice.")

    def with_rules(self, rules: Iterable[LayoutRule]) -> Parallel:
        """Adds rules; those that are there go first."""
        return replace(self, rules=(*self.rules, *rules))

    def rules_for(self, catalogue: WholeCatalogue) -> Rules:
        """Gives what the rules say of each site of a model."""
        classes = {node.path: node.class_name for node in catalogue.nodes}
        directions, roles = tuple(Direction), tuple(Role)

        def of_site(site: int) -> tuple[Placement, ...]:
            path, direction, role, argument, _ = catalogue.sites[site]
            for rule in self.rules:
                if fnmatchcase(classes.get(path, ""), rule.layer):
                    return rule.placements(directions[direction], roles[role], argument)
            return ()

        return of_site


def meshes_of(run: Run, parallel: Parallel | None = None) -> dict[int, Mesh]:
    """Gives each rank's coordinates and sizes: as recorded, else as the user says.

    Raises:
        LayoutError: Neither says anything, or sizes do not fit the number of ranks.
    """
    meshes = {rank: recorded_mesh(run, rank) for rank in run.ranks}
    if not any(meshes.values()) and not is_alone(run):
        if parallel is not None and parallel.sizes:
            return _counted(run, parallel)
        count = len(run.ranks)
        raise LayoutError(
            f"{run.path}: nothing tells how the work was spread over its {count} ranks. Say it, for example "
            f"--dp {count} or --tp {count}, or record again with mesh='dp={count}'."
        )
    if len({frozenset(mesh) for mesh in meshes.values()}) > 1:
        raise LayoutError(
            f"{run.path}: its ranks describe different meshes; record again with mesh= set to the one that it is."
        )
    return meshes


def is_alone(run: Run) -> bool:
    """Tells whether a run was of one rank."""
    return len(run.ranks) == 1 and run.rank(run.ranks[0]).info.world_size == 1


def recorded_mesh(run: Run, rank: int) -> Mesh:
    """Gives coordinate and size of a rank along each axis, as recorded; axes of one rank are left out."""
    found = run.rank(rank).info.mesh
    return {
        axis: (int(place[0]), int(place[1]))
        for axis, place in found.items()
        if not isinstance(place, int) and place[1] > 1
    }


def _counted(run: Run, parallel: Parallel) -> dict[int, Mesh]:
    world = run.rank(run.ranks[0]).info.world_size
    world = max(world, max(run.ranks) + 1)
    sizes = {axis: size for axis, size in parallel.sizes.items() if size > 1 and axis != "ep"}
    product = math.prod(sizes.values())
    if world % product:
        told = " x ".join(f"{axis} {size}" for axis, size in sizes.items())
        raise LayoutError(f"{run.path}: {told} = {product} ranks do not divide its {world} ranks.")
    if product < world:
        if "dp" in sizes:
            raise LayoutError(f"{run.path}: the axes make {product} ranks, the run has {world}.")
        sizes["dp"] = world // product
    order = [axis for axis in (parallel.order or ORDER) if axis in sizes]
    order += [axis for axis in ORDER if axis in sizes and axis not in order]
    return {rank: _place(rank, order, sizes, parallel.sizes.get("ep", 1)) for rank in run.ranks}


def _place(rank: int, order: Iterable[str], sizes: Mapping[str, int], experts: int) -> Mesh:
    mesh: dict[str, tuple[int, int]] = {}
    for axis in order:
        mesh[axis] = (rank % sizes[axis], sizes[axis])
        rank //= sizes[axis]
    if experts > 1 and "dp" in mesh:  # expert-parallel ranks are the innermost data-parallel ones
        mesh["ep"] = (mesh["dp"][0] % experts, experts)
    elif experts > 1:
        raise LayoutError(f"ep {experts}: experts are spread over data-parallel ranks, of which the run has one.")
    return mesh


def parse_sizes(axis: str, text: str) -> tuple[int, int]:
    """Reads the size of an axis on both sides: ``8``, or ``8/1`` for candidate and reference.

    >>> parse_sizes("tp", "8/1")
    (8, 1)
    """
    parts = text.split("/")
    if len(parts) > 2 or not all(part.strip().isdecimal() and int(part) for part in parts):
        raise LayoutError(f"--{axis} {text}: give a number of ranks, or two as candidate/reference: 8 or 8/1.")
    return int(parts[0]), int(parts[-1])


def parse_order(text: str) -> tuple[str, ...]:
    """Reads the order in which ranks are numbered along the axes, the fastest first.

    >>> parse_order("tp-cp-dp-pp")
    ('tp', 'cp', 'dp', 'pp')
    """
    return tuple(part.strip() for part in text.replace(",", "-").split("-") if part.strip())


def of_flags(sizes: Mapping[str, str], order: str = "") -> tuple[Parallel | None, Parallel | None]:
    """Gives what flags such as ``--tp 8/1`` say of candidate and reference; None for both where there are none.

    Raises:
        LayoutError: A flag is no size, or an axis unknown.
    """
    if not sizes:
        if order:
            raise LayoutError("--order says how ranks count along axes; give their sizes too, such as --tp 2.")
        return None, None
    read = {axis: parse_sizes(axis, text) for axis, text in sizes.items()}
    chunks = read.pop(VIRTUAL, (1, 1))
    counted = parse_order(order)
    first, second = (
        Parallel({axis: both[i] for axis, both in read.items()}, counted, virtual=chunks[i]) for i in range(2)
    )
    return first, second
