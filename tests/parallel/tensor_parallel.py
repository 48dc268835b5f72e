"""Tensor and sequence parallelism by the styles of ``torch.distributed.tensor.parallel``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from tests.parallel.transformer import Config, Transformer, make_model, train

if TYPE_CHECKING:
    from tests.parallel.launching import Rank


class RowwiseWithoutReduce(RowwiseParallel):
    """The fault: each rank goes on with its own part of the sum."""

    @staticmethod
    def _prepare_output_fn(
        output_layouts: Any, use_local_output: bool, mod: Any, outputs: Any, device_mesh: Any
    ) -> Any:
        return outputs.to_local()


def train_tensor_parallel(rank: Rank, *, sequence_parallel: bool = False, **settings: Any) -> None:
    config = Config(**settings)
    model = make_model(config)
    mesh = init_device_mesh("cpu", (rank.world,), mesh_dim_names=("tp",))
    plan = sequence_plan(config) if sequence_parallel else tensor_plan(config)
    if rank.fault == "no all-reduce":
        plan["layers.2.mlp.down"] = RowwiseWithoutReduce()
    parallelize_module(model, mesh, plan)
    if rank.fault is not None:
        seed_fault(rank, model)
    with rank.record(model) as probe:
        train(model, config, probe, seed=rank.rank if rank.fault == "seed by rank" else 0)
    rank.keep_weights(model)


def train_sequence_parallel(rank: Rank, **settings: Any) -> None:
    train_tensor_parallel(rank, sequence_parallel=True, **settings)


def train_sharded_tensor_parallel(rank: Rank, **settings: Any) -> None:
    """Two ranks of tensor parallelism, times two between which parameters are sharded and samples divided."""
    config = Config(**settings)
    model = make_model(config)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp_shard", "tp"))
    parallelize_module(model, mesh["tp"], tensor_plan(config))
    for layer in model.layers.values():
        fully_shard(layer, mesh=mesh["dp_shard"])
    fully_shard(model, mesh=mesh["dp_shard"])
    part = mesh.get_local_rank("dp_shard")
    with rank.record(model) as probe:
        train(model, config, probe, part=lambda whole: whole.chunk(2, 0)[part])


def tensor_plan(config: Config) -> dict[str, Any]:
    plan: dict[str, Any] = {
        "embed": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Replicate()),
    }
    for number in range(config.layers):
        at = f"layers.{number}"
        plan |= {f"{at}.attention.{name}": ColwiseParallel() for name in "qkv"}
        plan |= {f"{at}.mlp.{name}": ColwiseParallel() for name in ("gate", "up")}
        plan |= {f"{at}.attention.o": RowwiseParallel(), f"{at}.mlp.down": RowwiseParallel()}
    return plan


def sequence_plan(config: Config) -> dict[str, Any]:
    plan = tensor_plan(config)
    plan["embed"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
    plan["norm"] = SequenceParallel()
    plan["head"] = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
    for number in range(config.layers):
        at = f"layers.{number}"
        plan |= {f"{at}.attention_norm": SequenceParallel(), f"{at}.mlp_norm": SequenceParallel()}
        plan[f"{at}.attention"] = PrepareModuleInput(
            input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)
        )
        plan[f"{at}.mlp"] = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
        plan[f"{at}.attention.o"] = RowwiseParallel(output_layouts=Shard(1))
        plan[f"{at}.mlp.down"] = RowwiseParallel(output_layouts=Shard(1))
    return plan


def seed_fault(rank: Rank, model: Transformer) -> None:
    if rank.fault == "shards swapped":
        local = _local(model.get_parameter("layers.1.attention.q.weight"))
        both = [torch.empty_like(local) for _ in range(rank.world)]
        distributed.all_gather(both, local)
        local.copy_(both[1 - rank.rank])
    if rank.fault == "replica perturbed" and rank.rank == 1:
        _local(model.get_parameter("layers.3.mlp_norm.weight"))[0] += 0.01


def _local(parameter: nn.Parameter) -> torch.Tensor:
    return getattr(parameter, "_local_tensor", parameter).detach()
