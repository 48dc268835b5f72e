"""How parameters are cut, as far as they say so themselves: the attributes that Megatron-LM's layers set.

``tensor_model_parallel`` with ``partition_dim`` and ``partition_stride`` say along which dimension a parameter is cut,
and in how many blocks that are each cut by themselves (``set_tensor_model_parallel_attributes`` in
``megatron/core/tensor_parallel/layers.py``); ``sequence_parallel`` that its gradient has yet to be summed over the
ranks of tensor parallelism, ``allreduce`` False that it belongs to an expert.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msprobe.adapters.pytorch.parallel.spreads import Spread, of_layout
from msprobe.core.placement import Layout

if TYPE_CHECKING:
    import torch

    from msprobe.adapters.pytorch.parallel.mesh import Mesh

#: Attributes of parameters that are kept as facts.
ATTRIBUTES: Final = ("tensor_model_parallel", "partition_dim", "partition_stride", "sequence_parallel", "allreduce")


def attributes_of(parameter: torch.nn.Parameter) -> dict[str, Any]:
    """Gives what a parameter says of itself in attributes, in plain values."""
    found = {name: getattr(parameter, name, None) for name in ATTRIBUTES}
    return {name: value for name, value in found.items() if isinstance(value, bool | int)}


def by_attributes(parameter: Any, mesh: Mesh) -> Spread | None:
    """Gives how a parameter is cut, if its attributes say so."""
    size = mesh.sizes.get("tp", 1)
    dim = getattr(parameter, "partition_dim", -1)
    if size < 2 or getattr(parameter, "tensor_model_parallel", False) is not True or not isinstance(dim, int):
        return None
    if not 0 <= dim < parameter.ndim:
        return None
    shape = list(parameter.shape)
    shape[dim] *= size
    blocks = getattr(parameter, "partition_stride", 1)
    each = shape[dim] // blocks if isinstance(blocks, int) and blocks > 0 and shape[dim] % blocks == 0 else shape[dim]
    layout = Layout.whole(shape).shard(
        "tp", dim, coordinate=mesh.coordinates["tp"], parts=size, blocks=(each,) * (shape[dim] // each)
    )
    return of_layout(layout) if layout.shape == tuple(parameter.shape) else None
