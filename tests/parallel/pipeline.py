"""Pipeline parallelism by ``torch.distributed.pipelining``; stages keep the names of the whole model's layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B
from torch.distributed.tensor.parallel import parallelize_module

from tests.parallel.tensor_parallel import tensor_plan
from tests.parallel.transformer import Config, Transformer, loss_of, make_batch, make_model, make_optimizer

if TYPE_CHECKING:
    from tests.parallel.launching import Rank

MICRO_BATCHES = 2


def train_pipeline(rank: Rank, *, schedule: str = "1F1B", **settings: Any) -> None:
    """Two uneven stages: four layers and two."""
    config = Config(**settings)
    stage = PipelineStage(part_of(config, rank.rank, [4, 2]), rank.rank, 2, torch.device("cpu"))
    kind = {"1F1B": Schedule1F1B, "GPipe": ScheduleGPipe}[schedule]
    runs = kind(stage, MICRO_BATCHES, loss_fn=loss_of)
    train_stages(rank, config, runs, [stage])


def train_virtual_pipeline(rank: Rank, **settings: Any) -> None:
    """Four stages of 1, 2, 2 and 1 layers on two ranks: rank 0 has the first and the third."""
    config = Config(**settings)
    stages: list[Any] = [
        PipelineStage(part_of(config, number, [1, 2, 2, 1]), number, 4, torch.device("cpu"))
        for number in (rank.rank, rank.rank + 2)
    ]
    runs = ScheduleInterleaved1F1B(stages, MICRO_BATCHES, loss_fn=loss_of)
    train_stages(rank, config, runs, stages)


def train_pipeline_of_tensor_parallel(rank: Rank, **settings: Any) -> None:
    """Two stages of two ranks each."""
    config = Config(**settings)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
    number = mesh.get_local_rank("pp")
    model = part_of(config, number, [3, 3])
    plan = {path: style for path, style in tensor_plan(config).items() if _has(model, path)}
    parallelize_module(model, mesh["tp"], plan)
    stage = PipelineStage(model, number, 2, torch.device("cpu"), group=mesh.get_group("pp"))
    train_stages(rank, config, ScheduleGPipe(stage, MICRO_BATCHES, loss_fn=loss_of), [stage])


def train_stages(rank: Rank, config: Config, schedule: Any, stages: list[Any]) -> None:
    modules = nn.ModuleList([stage.submod for stage in stages])
    for module in modules:
        if rank.fault == "wrong weight" and "layers.5.mlp_norm.weight" in dict(module.named_parameters()):
            module.get_parameter("layers.5.mlp_norm.weight").data[0] += 0.01
    optimizer = make_optimizer(modules, config)
    first, last = stages[0].is_first, stages[-1].is_last
    with rank.record(stages if len(stages) > 1 else stages[0].submod) as probe:
        for step in range(config.steps):
            torch.manual_seed(step)
            words, targets, positions = make_batch(config, step)
            optimizer.zero_grad()
            inputs = (words,) if first else ()
            schedule.step(*inputs, positions=positions, **({"target": targets, "losses": []} if last else {}))
            optimizer.step()
            probe.step()
    distributed.barrier()


def part_of(config: Config, number: int, sizes: list[int]) -> Transformer:
    """Gives one stage of a model cut into stages of so many layers."""
    model = make_model(config)
    start = sum(sizes[:number])
    kept = {str(layer) for layer in range(start, start + sizes[number])}
    for layer in set(model.layers) - kept:
        del model.layers[layer]
    if number > 0:
        model.embed = model.drop = None
    if number < len(sizes) - 1:
        model.norm = model.head = None
    return model


def _has(model: nn.Module, path: str) -> bool:
    try:
        return model.get_submodule(path) is not None
    except AttributeError:
        return False
