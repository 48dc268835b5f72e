"""Parameters held by FSDP2 (``fully_shard``) and by its replicating sibling: one shard of each, as DTensors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from msprobe.adapters.pytorch.dtensors import local_of, name_axes
from msprobe.adapters.pytorch.holdings import DataParallel, Found, place
from msprobe.adapters.pytorch.parallel.mesh import mesh_axes

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from msprobe.adapters.pytorch.placed import Placed


class FullyShardedParameter:
    """A parameter of one group of ``fully_shard``."""

    def __init__(self, parameter: Any, owner: Any, group: DataParallel) -> None:
        self._parameter = parameter
        self._owner = owner
        self.group = group

    @property
    def updated(self) -> torch.Tensor:
        """The sharded parameter."""
        sharded: torch.Tensor = self._parameter.sharded_param
        return sharded

    def stored(self) -> torch.Tensor | Placed:
        """Gives the local shard."""
        return local_of(self.updated)

    def part(self, tensor: torch.Tensor) -> torch.Tensor | Placed:
        """Gives the local shard of what the optimizer keeps: a DTensor too."""
        return local_of(tensor)

    def used(self) -> torch.Tensor | None:
        """Gives the gathered parameter: one object, whose memory comes and goes."""
        found: torch.Tensor | None = getattr(self._parameter, "_unsharded_param", None)
        return found

    def gradient(self) -> torch.Tensor | Placed | None:
        """Gives the local shard of the reduced gradient."""
        gradient = self.updated.grad
        return None if gradient is None else local_of(gradient)

    def reduces(self) -> bool:
        """Tells whether gradients are reduced, over all axes."""
        return bool(self._owner.reduce_grads and getattr(self._owner, "all_reduce_grads", True))


def find_fully_sharded(root: torch.nn.Module) -> Iterator[Found]:
    """Gives the groups of parameters that ``fully_shard`` made in a model."""
    for module in root.modules():
        state = _state(module)
        for owner in _groups(state):
            group = _data_parallel(owner)
            parameters = []
            for parameter in owner.fsdp_params:
                _declare(parameter)
                holding = FullyShardedParameter(parameter, owner, group)
                info = parameter._module_info
                names = [(info.module, info.param_name)]
                names += zip(info.shared_modules, info.shared_param_names, strict=True)
                parameters += [(where, name, holding) for where, name in names]
            yield Found(module, parameters, group, _facts(state, owner, group))


def _state(module: torch.nn.Module) -> Any:
    """Gives the state of a module that ``fully_shard`` was called on."""
    get = getattr(type(module), "_get_fsdp_state", None)
    return None if get is None else get(module)


def _groups(state: Any) -> list[Any]:
    if state is None:
        return []
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:  # before torch 2.12 a state had one group
        groups = [getattr(state, "_fsdp_param_group", None)]
    return [group for group in groups if group is not None]


def _data_parallel(owner: Any) -> DataParallel:
    info = owner.mesh_info
    places = []
    if hasattr(info, "replicate_mesh_size"):
        places.append(place("dp", info.replicate_process_group))
    if hasattr(info, "shard_mesh_size"):
        places.append(place("fsdp", info.shard_process_group))
    size = math.prod(one.size for one in places)
    return DataParallel(tuple(places), float(getattr(owner, "gradient_divide_factor", None) or size))


def _declare(parameter: Any) -> None:
    """Says which dimensions of the parameter's mesh are data-parallel ones."""
    info, mesh = parameter.mesh_info, parameter.sharded_param._spec.mesh
    axes = list(mesh_axes(mesh))
    if getattr(info, "is_spmd_mesh", False):
        names = info.dp_mesh_dims
        known = dict.fromkeys(names.shard_names, "fsdp") | dict.fromkeys(names.replicate_names, "dp")
        axes = [known.get(name, axis) for name, axis in zip(mesh.mesh_dim_names or axes, axes, strict=True)]
    else:
        for dim, axis in ((info.shard_mesh_dim, "fsdp"), (info.replicate_mesh_dim, "dp")):
            if dim is not None:
                axes[dim] = axis
    name_axes(mesh, axes)


def _facts(state: Any, owner: Any, group: DataParallel) -> dict[str, Any]:
    policy = owner.mp_policy
    facts = {
        "wrapper": "fully_shard" if "fsdp" in group.sizes else "replicate",
        "reshard_after_forward": owner.post_forward_mesh_info is not None,
        "gradient_divisor": group.divisor,
        "ranks": group.sizes,
    }
    for name in ("param_dtype", "reduce_dtype", "output_dtype"):
        dtype = getattr(policy, name, None)
        if dtype is not None:
            facts[name] = str(dtype).removeprefix("torch.")
    return facts
