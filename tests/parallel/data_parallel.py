"""Data-parallel trainings of the shared model: each rank has its part of the batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from tests.parallel.transformer import Block, Config, make_model, train

if TYPE_CHECKING:
    from tests.parallel.launching import Rank


def wrap(way: str, model: nn.Module) -> nn.Module:
    """Wraps a model: ddp, fsdp1, fsdp1-flat (``use_orig_params=False``), fsdp1-hybrid, fsdp2 or hsdp."""
    if way == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    policy = ModuleWrapPolicy({Block})
    if way in ("fsdp1", "fsdp1-flat"):
        return FullyShardedDataParallel(
            model, auto_wrap_policy=policy, use_orig_params=way == "fsdp1", device_id=torch.device("cpu")
        )
    if way == "fsdp1-hybrid":
        mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        return FullyShardedDataParallel(
            model, auto_wrap_policy=policy, use_orig_params=True, device_id=torch.device("cpu"), device_mesh=mesh,
            sharding_strategy=ShardingStrategy.HYBRID_SHARD,
        )  # fmt: skip
    mesh = (
        init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
        if way == "hsdp"
        else init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    )
    for module in model.modules():
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def part_of(rank: Rank, *, interleaved: bool = False) -> Any:
    """Gives the function that takes a rank's part of a batch."""

    def part(whole: Tensor) -> Tensor:
        size = len(whole) // rank.world
        taken = whole[rank.rank :: rank.world] if interleaved else whole[rank.rank * size : (rank.rank + 1) * size]
        return taken.contiguous()

    return part


def train_data_parallel(rank: Rank, way: str = "ddp", **settings: Any) -> None:
    config = Config(**settings)
    model = wrap(way, make_model(config))
    with rank.record(model) as probe:
        train(model, config, probe, part=part_of(rank))


_ = MixedPrecision
