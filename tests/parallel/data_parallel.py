"""Data-parallel trainings of the shared model: each rank has its part of the batch."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from tests.parallel.transformer import (
    Block,
    Config,
    loss_of,
    make_batch,
    make_model,
    make_optimizer,
    named_weight,
    train,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.parallel.launching import Rank


def wrap(way: str, model: nn.Module, *, mixed: bool = False, **more: Any) -> nn.Module:
    """Wraps a model: ddp, fsdp1, fsdp1-flat (``use_orig_params=False``), fsdp1-hybrid, fsdp2 or hsdp."""
    if way == "ddp":
        return nn.parallel.DistributedDataParallel(model, **more)
    if way.startswith("fsdp1"):
        if way == "fsdp1-hybrid":
            mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
            more |= {"device_mesh": mesh, "sharding_strategy": ShardingStrategy.HYBRID_SHARD}
        if mixed:
            more["mixed_precision"] = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        policy = ModuleWrapPolicy({Block})
        more |= {"use_orig_params": way != "fsdp1-flat", "device_id": torch.device("cpu")}
        return FullyShardedDataParallel(model, auto_wrap_policy=policy, **more)
    world = torch.distributed.get_world_size()
    mesh = (
        init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
        if way == "hsdp"
        else init_device_mesh("cpu", (world,))
    )
    if mixed:
        more["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for module in model.modules():
        if isinstance(module, Block):
            fully_shard(module, mesh=mesh, **more)
    fully_shard(model, mesh=mesh, **more)
    return model


def part_of(rank: int, world: int, *, interleaved: bool = False) -> Callable[[Tensor], Tensor]:
    """Gives the function that takes a rank's part of a batch."""

    def part(whole: Tensor) -> Tensor:
        size = len(whole) // world
        return (whole[rank::world] if interleaved else whole[rank * size : (rank + 1) * size]).contiguous()

    return part


def train_data_parallel(rank: Rank, way: str = "ddp", *, interleaved: bool = False, **settings: Any) -> None:
    config = Config(**settings)
    model = wrap(way, make_model(config))
    before_step = seed_fault(rank, model)
    number = 0 if rank.fault == "same samples" else rank.rank
    options = {"batch_order": "interleaved"} if interleaved else {}
    with rank.record(model, **options) as probe:
        part = part_of(number, rank.world, interleaved=interleaved)
        train(model, config, probe, part=part, before_step=before_step)


# --- faults
# ----------------------------------------------------------------------------------------------------------------

#: The module whose weight a fault meets, in the model and inside of its wrapper.
FAULTY = "layers.1.mlp.up"


def seed_fault(rank: Rank, model: nn.Module) -> Callable[[], None]:
    """Puts the fault of a layout in, on its last rank; gives what is to be done before the optimizer's step."""
    last = rank.rank == rank.world - 1
    faulty = next(module for name, module in model.named_modules() if _plain_name(name) == FAULTY)
    if rank.fault == "one replica's weight" and last:
        local = getattr(faulty.weight, "_local_tensor", faulty.weight)
        local.data.reshape(-1)[3] += 0.01
    if rank.fault == "shards in wrong order":
        _swap_shards(faulty)
    if rank.fault == "gathered wrongly" and last:
        faulty.register_forward_pre_hook(lambda module, _: module.weight.data.view(-1)[3].add_(0.01) and None)
    if rank.fault == "mean forgotten":
        return lambda: _scale_gradients(model, rank.world)
    if rank.fault == "not reduced" and last:
        return _keep_own_gradient(faulty)
    return lambda: None


def _plain_name(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in ("module", "_fsdp_wrapped_module"))


def _swap_shards(faulty: Any) -> None:
    whole = faulty.weight.full_tensor()
    local = faulty.weight._local_tensor
    first = len(whole) - len(local) if torch.distributed.get_rank() == 0 else 0
    local.data.copy_(whole[first : first + len(local)])


def _scale_gradients(model: nn.Module, factor: float) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad.mul_(factor)


def _keep_own_gradient(faulty: Any) -> Callable[[], None]:
    own: list[Tensor] = []
    faulty.weight.register_hook(lambda gradient: own.append(gradient.clone()))
    return lambda: faulty.weight.grad.copy_(own.pop())


# --- gradients by hand
# ----------------------------------------------------------------------------------------------------------------

#: Forward-backward passes of one step; what the gradients are made smaller by before the optimizer's step.
MICRO_STEPS, CLIPPED = 2, 0.5


def make_tied_model(config: Config) -> nn.Module:
    """Gives a model whose head shares the embedding's weight, with a module that is never called."""
    model = make_model(config)
    model.head.weight = model.embed.weight  # type: ignore[union-attr]
    model.idle = nn.Linear(3, 5)
    for name, parameter in model.idle.named_parameters():
        parameter.data.copy_(named_weight(name, parameter))
    return model


def gradients_of(model: nn.Module, config: Config, step: int, micro_step: int, rank: int, world: int) -> None:
    """Adds a rank's gradients of one micro-step to a model."""
    part = part_of(rank, world)
    words, targets, positions = (part(whole) for whole in make_batch(config, MICRO_STEPS * step + micro_step))
    (loss_of(model(words, positions), targets) / MICRO_STEPS).backward()


def train_by_micro_steps(rank: Rank, way: str, **settings: Any) -> None:
    """Trains twice, without and with a recording, which must not change a bit.

    Step 0 reduces gradients at the last micro-step only, step 1 at each.
    """
    torch.use_deterministic_algorithms(mode=True)
    plain = _train_by_micro_steps(rank, way, settings, record=False)
    recorded = _train_by_micro_steps(rank, way, settings, record=True)
    assert plain.keys() == recorded.keys()
    for name, tensor in plain.items():
        assert torch.equal(tensor, recorded[name]), f"recording changed {name}"


def _train_by_micro_steps(rank: Rank, way: str, settings: dict[str, Any], *, record: bool) -> dict[str, Tensor]:
    config = Config(**settings)
    model = wrap(way, make_tied_model(config), **({"find_unused_parameters": True} if way == "ddp" else {}))
    optimizer = make_optimizer(model, config)
    with rank.record(model, optimizer=optimizer) if record else contextlib.nullcontext():
        for step in range(config.steps):
            optimizer.zero_grad()
            for micro_step in range(MICRO_STEPS):
                with _accumulating(model, active=step == 0 and micro_step < MICRO_STEPS - 1):
                    gradients_of(model, config, step, micro_step, rank.rank, rank.world)
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(CLIPPED)
            optimizer.step()
    return {name: getattr(p, "_local_tensor", p).detach().clone() for name, p in model.named_parameters()}


@contextlib.contextmanager
def _accumulating(model: Any, *, active: bool) -> Any:
    if hasattr(model, "no_sync"):
        with model.no_sync() if active else contextlib.nullcontext():
            yield
    else:
        model.set_requires_gradient_sync(not active)
        yield
