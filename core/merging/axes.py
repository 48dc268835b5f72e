"""What each axis of the mesh does to a tensor: as its layout says, else as the axis does by its nature.

Ranks along a data axis work on different samples: their activations are shards of the batch (dimension 0), never
replicas; what lasts (parameters, state) is one and the same; gradients before the reduction are terms of a sum. Of any
other axis an empty layout says that the tensor is whole on each rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from msprobe.core.placement import DATA_AXES, Layout, Placement
from msprobe.core.sites import Direction, Form, Role


class Nature(IntEnum):
    """What a site's tensors are to the parallel axes."""

    ACTIVATION = 0
    #: Parameters, buffers and the optimizer's state.
    LASTING = 1
    #: Gradients of parameters before they are reduced over ranks.
    LOCAL_GRADIENT = 2
    #: The same after that.
    REDUCED_GRADIENT = 3
    #: What the recorder derived; no axis says anything of it.
    DERIVED = 4


def nature(direction: Direction, role: Role) -> Nature:
    """Tells what tensors of a site are to the parallel axes."""
    if role is Role.GRADIENT:
        return Nature.LOCAL_GRADIENT if direction is Direction.BACKWARD else Nature.REDUCED_GRADIENT
    if role in (Role.PARAMETER, Role.BUFFER, Role.STATE):
        return Nature.LASTING
    if role is Role.DERIVED:  # what an update did to a parameter lies like it
        return Nature.LASTING if direction is Direction.UPDATE else Nature.DERIVED
    return Nature.ACTIVATION


@dataclass(frozen=True, slots=True)
class Member:
    """One rank's tensor among those that make a whole: where the rank stands, and what was recorded of the tensor.

    ``mesh`` maps an axis to coordinate and size. ``rules`` holds placements given for the tensor's class; they speak
    where the layout says nothing.
    """

    rank: int
    mesh: Mapping[str, tuple[int, int]]
    form: Form
    layout: Layout | None
    rules: tuple[Placement, ...] = ()

    def coordinate(self, axis: str) -> int:
        """Gives the rank's place along an axis; 0 where it has none."""
        return self.mesh.get(axis, (0, 1))[0]


@dataclass(frozen=True, slots=True)
class Placed:
    """What the axes of more than one rank do to a tensor.

    ``joined`` are axes along which ranks hold pieces of one dimension that follow each other, with that dimension: the
    sizes come from the pieces. ``partial`` are axes along which values have yet to be combined, with the operation
    ("" where it is not recorded); ``unknown`` those of which nothing is known. All others replicate, or are cut as
    the layout's spans say.
    """

    joined: tuple[tuple[str, int], ...]
    partial: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...]


def place(member: Member, nature: Nature) -> Placed:
    """Settles what every axis does to a member's tensor."""
    said = {p.axis: p for p in member.layout.placements} if member.layout is not None else {}
    ruled = {p.axis: p for p in member.rules}
    joined: list[tuple[str, int]] = []
    partial: list[tuple[str, str]] = []
    unknown: list[str] = []
    data = data_axes(member.mesh)
    for axis in sorted(member.mesh, key=_join_order):
        if member.mesh[axis][1] < 2 or axis == "pp":
            continue
        placement = said.get(axis)
        if placement is not None and placement.kind == "shard":
            continue  # the spans say it
        if placement is None or placement.kind == "unknown":
            placement = ruled.get(axis, placement)
        if placement is None:
            placement = _by_nature(axis, nature, is_data=axis in data)
        if placement.kind == "shard":
            joined.append((axis, placement.dim))
        elif placement.kind == "partial":
            partial.append((axis, placement.op))
        elif placement.kind == "unknown":
            unknown.append(axis)
    return Placed(tuple(joined), tuple(partial), tuple(unknown))


def data_axes(mesh: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    """Gives the axes of a mesh along which ranks work on different samples."""
    found = tuple(axis for axis in DATA_AXES if axis in mesh)
    return found or tuple(axis for axis in ("ep",) if axis in mesh)


def _by_nature(axis: str, nature: Nature, *, is_data: bool) -> Placement:
    if nature is Nature.DERIVED:
        return Placement(axis, "unknown")
    if axis == "ep" and not is_data:
        return Placement(axis, "replicate")  # a part of the data axes, which speak for it
    if not is_data and axis != "cp":
        return Placement(axis, "replicate")
    if nature is Nature.LOCAL_GRADIENT:
        return Placement(axis, "partial")
    if nature is not Nature.ACTIVATION:
        return Placement(axis, "replicate")
    return Placement(axis, "shard", 0) if is_data else Placement(axis, "unknown")


def _join_order(axis: str) -> tuple[int, str]:
    """Sorts axes from the outermost to the innermost piece of a batch."""
    order = ("dp", "fsdp", "ep", "cp", "tp")
    return (order.index(axis) if axis in order else len(order), axis)
