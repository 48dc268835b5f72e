"""Distributed tensors of torch (DTensor) as local parts of whole tensors."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

from msprobe.adapters.pytorch.parallel.mesh import declare_axes, mesh_axes
from msprobe.adapters.pytorch.placed import Placed
from msprobe.core.placement import Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch


def is_dtensor(tensor: object) -> bool:
    """Tells whether the tensor is torch's distributed one; imports nothing."""
    return type(tensor).__name__ == "DTensor" and type(tensor).__module__.startswith("torch.distributed")


def name_axes(mesh: Any, axes: Sequence[str]) -> None:
    """Says which axes the dimensions of a mesh are, whatever they are called."""
    if declare_axes(mesh, axes):
        layout_of_spec.cache_clear()


def places_of(mesh: Any) -> dict[str, tuple[int, int]]:
    """Gives this rank's coordinate and the number of ranks along each axis of a mesh; empty outside of it."""
    coordinate = mesh.get_coordinate()
    if coordinate is None:
        return {}
    return {axis: (coordinate[i], mesh.size(i)) for i, axis in enumerate(mesh_axes(mesh))}


def placed(tensor: Any) -> Placed:
    """Gives the local part of a DTensor and how it lies in the whole."""
    return Placed(tensor._local_tensor, layout_of_spec(tensor._spec), followed=False)


@lru_cache(maxsize=65536)
def layout_of_spec(spec: Any) -> Layout:
    """Gives the layout of the local part of a DTensor by its spec (mesh, placements, global shape).

    A strided shard (FSDP over tensor parallelism) cuts what the dimensions of the mesh to its right have left.
    """
    layout = Layout.whole(tuple(spec.shape))
    mesh = spec.mesh
    places, axes = places_of(mesh), mesh_axes(mesh)
    for index in _cutting_order(spec.placements):
        axis, placement = axes[index], spec.placements[index]
        coordinate, size = places.get(axis, (0, 0))
        if size == 1:
            continue
        if size and type(placement).__name__ in ("Shard", "_StridedShard"):
            layout = layout.shard(axis, placement.dim, coordinate=coordinate, parts=size)
        elif placement.is_partial() and "Mask" not in type(placement).__name__:  # rows of other ranks are arbitrary
            layout = layout.partial(axis, str(placement.reduce_op))
        else:
            layout = layout.replicate(axis) if placement.is_replicate() else layout.unknown(axis)
    return layout


def local_of(tensor: torch.Tensor | Placed) -> torch.Tensor | Placed:
    """Gives a DTensor as a placed part, anything else as it is."""
    return placed(tensor) if is_dtensor(tensor) else tensor


def _cutting_order(placements: Sequence[Any]) -> list[int]:
    strided = [i for i, placement in enumerate(placements) if type(placement).__name__ == "_StridedShard"]
    return [i for i in range(len(placements)) if i not in strided] + strided[::-1]
