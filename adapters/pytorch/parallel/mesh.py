"""The parallel mesh: its axes and sizes, and where this rank stands on it.

Asked in this order: the user (``parallel`` of the recording, or the variable ``MSPROBE_MESH``), device meshes that the
program made, Megatron's ``parallel_state``.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Final

import torch

from msprobe.core.errors import RecordingError
from msprobe.core.options import parse_option

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: ``pp=2,tp=4``: axes from the outermost (whose ranks lie furthest apart) to the innermost.
MESH_VARIABLE: Final = "MSPROBE_MESH"
#: Other names of the axes of ``core.placement.AXES``.
_NAMES: Final = {
    "tensor": "tp", "tensor_parallel": "tp", "model": "tp", "mp": "tp",
    "pipe": "pp", "pipeline": "pp", "stage": "pp",
    "data": "dp", "ddp": "dp", "replicate": "dp", "dp_replicate": "dp", "hsdp_replicate": "dp",
    "dp_shard": "fsdp", "shard": "fsdp", "zero": "fsdp",
    "context": "cp", "ring": "cp", "expert": "ep",
}  # fmt: skip
#: Axis -> the word that Megatron's ``parallel_state`` has for it.
_MEGATRON: Final = {
    "pp": "pipeline_model_parallel", "dp": "data_parallel", "cp": "context_parallel", "tp": "tensor_model_parallel",
    "ep": "expert_model_parallel",
}  # fmt: skip
#: Device meshes whose dimensions are known to be something else than they are called.
_declared: dict[Any, tuple[str, ...]] = {}


@dataclass(frozen=True)
class Mesh:
    """The axes with their sizes, outermost first, this rank's coordinate on each, and the global ranks along each."""

    sizes: Mapping[str, int]
    coordinates: Mapping[str, int]
    groups: Mapping[str, tuple[int, ...]]

    @classmethod
    def of_grid(cls, sizes: Mapping[str, int], rank: int) -> Mesh:
        """Makes the mesh whose ranks count up along the last axis first."""
        axes = list(sizes)
        places = list(product(*(range(sizes[axis]) for axis in axes)))
        base = rank - rank % len(places)
        own = places[rank % len(places)]
        groups = {}
        for i, axis in enumerate(axes):
            along = [n for n, place in enumerate(places) if place[:i] + place[i + 1 :] == own[:i] + own[i + 1 :]]
            groups[axis] = tuple(base + n for n in along)
        return cls(dict(sizes), dict(zip(axes, own, strict=True)), groups)

    @property
    def places(self) -> dict[str, tuple[int, int]]:
        """Coordinate and size by axis, as ``core.run.batch.RankInfo`` holds them."""
        return {axis: (self.coordinates[axis], size) for axis, size in self.sizes.items()}

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes of more than one rank, outermost first."""
        return tuple(axis for axis, size in self.sizes.items() if size > 1)

    def axes_of(self, ranks: Iterable[int]) -> tuple[str, ...]:
        """Gives the axes that a group of global ranks spans; empty where it spans none exactly."""
        wanted = frozenset(ranks)
        for axis in self.axes:
            if frozenset(self.groups[axis]) == wanted:
                return (axis,)
        whole = math.prod(self.sizes.values())
        return self.axes if len(wanted) == whole > 1 else ()


NO_MESH: Final = Mesh({}, {}, {})


def find_mesh(models: Iterable[torch.nn.Module], asked: Iterable[tuple[str, int]] = ()) -> Mesh:
    """Gives the mesh that this process is part of; one without axes where none is known.

    Raises:
        RecordingError: The sizes that the user gave do not make the number of ranks.
        ConfigError: The variable is no mesh.
    """
    rank, world = rank_and_world()
    named = dict(asked or parse_option("mesh", os.environ.get(MESH_VARIABLE, "")))
    if named:
        if math.prod(named.values()) != world:
            told = " x ".join(f"{axis}={size}" for axis, size in named.items())
            raise RecordingError(f"the mesh {told} has {math.prod(named.values())} ranks, the program has {world}.")
        return Mesh.of_grid({axis_name(axis): size for axis, size in named.items()}, rank)
    if world == 1:
        return NO_MESH
    models = list(models)
    return _of_device_meshes(device_meshes(models), models, rank) or _of_megatron() or NO_MESH


def axis_name(name: str) -> str:
    """Gives the name that ``core.placement.AXES`` has for an axis; other names stay as they are.

    >>> axis_name("dp_shard"), axis_name("TP"), axis_name("mine")
    ('fsdp', 'tp', 'mine')
    """
    lower = name.lower()
    return _NAMES.get(lower, lower)


def mesh_axes(mesh: Any, *, shards_data: bool = False) -> tuple[str, ...]:
    """Gives the axis names of a device mesh; without names the last one is ``tp``, or ``fsdp`` if data is sharded."""
    known = _declared.get(mesh)
    if known is not None:
        return known
    if mesh.mesh_dim_names is not None:
        return tuple(axis_name(name) for name in mesh.mesh_dim_names)
    usual = ("dp", "fsdp") if shards_data else ("dp", "tp")
    return tuple(f"dim_{i}" for i in range(mesh.ndim - 2)) + usual[-min(mesh.ndim, 2) :]


def declare_axes(mesh: Any, axes: Sequence[str]) -> bool:
    """Says which axes the dimensions of a device mesh are, whatever they are called; tells whether that is new."""
    changes = mesh_axes(mesh) != tuple(axes)
    if changes:
        _declared[mesh] = tuple(axes)
        root = _root_of(mesh)
        if root is not mesh and mesh.mesh_dim_names and root.mesh_dim_names:
            known = dict(zip(mesh.mesh_dim_names, axes, strict=True))
            own = zip(root.mesh_dim_names, mesh_axes(root), strict=True)
            _declared[root] = tuple(known.get(name, axis) for name, axis in own)
    return changes


def with_axes(mesh: Mesh, places: Iterable[Any]) -> Mesh:
    """Adds the axes over which wrappers spread data and parameters (``holdings.Place``)."""
    for place in places:
        mesh = with_axis(mesh, place.axis, (place.coordinate, place.size), place.ranks)
    return mesh


def with_axis(mesh: Mesh, axis: str, place: tuple[int, int], ranks: tuple[int, ...]) -> Mesh:
    """Adds an axis, the innermost of all, unless it is there; an axis of the same ranks gets its name."""
    if axis in mesh.sizes:
        return mesh
    same = next((name for name, group in mesh.groups.items() if group == ranks and len(ranks) > 1), None)
    if same is not None:
        names = {name: axis if name == same else name for name in mesh.sizes}
        return Mesh(
            {names[name]: size for name, size in mesh.sizes.items()},
            {names[name]: coordinate for name, coordinate in mesh.coordinates.items()},
            {names[name]: group for name, group in mesh.groups.items()},
        )
    return Mesh(
        {**mesh.sizes, axis: place[1]}, {**mesh.coordinates, axis: place[0]}, {**mesh.groups, axis: tuple(ranks)}
    )


def device_meshes(models: Iterable[torch.nn.Module]) -> list[Any]:
    """Gives the device meshes that distributed parameters of the models name, widest first, and the one in force."""
    found: list[Any] = []
    for model in models:
        for parameter in model.parameters():
            mesh = getattr(getattr(parameter, "_spec", None), "mesh", None)
            if mesh is not None:
                found += [root for root in (_root_of(mesh), mesh) if root not in found]
    resources = getattr(sys.modules.get("torch.distributed.device_mesh"), "_mesh_resources", None)
    found += [mesh for mesh in getattr(resources, "mesh_stack", ()) if mesh not in found]
    return sorted(found, key=lambda mesh: -mesh.ndim)


def _root_of(mesh: Any) -> Any:
    ask = getattr(mesh, "_get_root_mesh", None)
    return (ask() if ask is not None else None) or mesh


def _of_device_meshes(meshes: Sequence[Any], models: Sequence[torch.nn.Module], rank: int) -> Mesh | None:
    shards_data = any(_shards_data(module) for model in models for module in model.modules())
    sizes: dict[str, int] = {}
    coordinates: dict[str, int] = {}
    groups: dict[str, tuple[int, ...]] = {}
    for mesh in meshes:
        own = mesh.get_coordinate()
        if own is None:
            continue
        for i, axis in enumerate(mesh_axes(mesh, shards_data=shards_data)):
            if axis not in sizes:
                sizes[axis], coordinates[axis] = mesh.size(i), own[i]
                groups[axis] = tuple(_along(mesh.mesh, own, i))
    return Mesh(sizes, coordinates, groups) if sizes else None


def _along(grid: torch.Tensor, own: Sequence[int], axis: int) -> Iterator[int]:
    line = grid.movedim(axis, -1)
    for coordinate in (*own[:axis], *own[axis + 1 :]):
        line = line[coordinate]
    yield from (int(rank) for rank in line.tolist())


def _shards_data(module: torch.nn.Module) -> bool:
    return any(kind.__name__ in ("FSDPModule", "FullyShardedDataParallel") for kind in type(module).__mro__)


def _of_megatron() -> Mesh | None:
    state = sys.modules.get("megatron.core.parallel_state")
    if state is None or not _ask(state, "model_parallel_is_initialized", default=False):
        return None
    sizes: dict[str, int] = {}
    coordinates: dict[str, int] = {}
    groups: dict[str, tuple[int, ...]] = {}
    for axis, word in _MEGATRON.items():
        size = _ask(state, f"get_{word}_world_size", default=1)
        group = _ask(state, f"get_{word}_group", default=None)
        if size > 1 and group is not None:
            sizes[axis], coordinates[axis] = size, _ask(state, f"get_{word}_rank", default=0)
            groups[axis] = tuple(torch.distributed.get_process_group_ranks(group))
    return Mesh(sizes, coordinates, groups) if sizes else None


def _ask(state: Any, name: str, *, default: Any) -> Any:
    question = getattr(state, name, None)
    try:
        return default if question is None else question()
    except (AssertionError, RuntimeError):  # the group was not made
        return default


def rank_and_world() -> tuple[int, int]:
    """Gives the global rank and the number of ranks: from torch.distributed, else from the launcher's variables."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    texts = (os.environ.get("RANK", ""), os.environ.get("WORLD_SIZE", ""))
    rank, world = (int(text) if text.isdecimal() else default for text, default in zip(texts, (0, 1), strict=True))
    return rank, world
