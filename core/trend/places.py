"""Where a rank stands on the parallel mesh, and which ranks are its replicas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msprobe.core.placement import DATA_AXES


def coordinates(mesh: Mapping[str, Any]) -> dict[str, int]:
    """Gives a rank's coordinate on each axis; an axis has its (coordinate, size), or the coordinate alone.

    >>> coordinates({"tp": 1, "dp": (3, 8)})
    {'tp': 1, 'dp': 3}
    """
    return {axis: int(at[0] if isinstance(at, Sequence) else at) for axis, at in mesh.items()}


def peer_groups(meshes: Mapping[int, Mapping[str, Any]]) -> dict[int, int]:
    """Numbers groups of ranks that do the same work on other samples: equal on all axes but the data-parallel ones.

    Ranks without a mesh are one group.
    """
    keys = {
        rank: tuple(sorted((axis, at) for axis, at in coordinates(mesh).items() if axis not in DATA_AXES))
        for rank, mesh in meshes.items()
    }
    known: dict[tuple[tuple[str, int], ...], int] = {}
    return {rank: known.setdefault(key, len(known)) for rank, key in keys.items()}
