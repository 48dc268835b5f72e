"""Wrappers in the ways that people use them: precision, checkpointing, frozen and idle parameters, compiled blocks."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing
from torch.distributed.fsdp import ShardingStrategy

from tests.parallel.data_parallel import make_tied_model, part_of, wrap
from tests.parallel.transformer import Block, Config, loss_of, make_batch

if TYPE_CHECKING:
    from tests.parallel.launching import Rank

CONFIG = Config(layers=2, batch=4)
#: name -> (way to wrap, what of ``_prepare`` is done before, options of the wrapper)
CASES: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "fsdp2 in bf16, checkpointed": ("fsdp2", ("checkpoint", "freeze"), {"mixed": True}),
    "fsdp1 in bf16, checkpointed": ("fsdp1", ("checkpoint", "freeze"), {"mixed": True}),
    "fsdp1 kept whole after forward": ("fsdp1", (), {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}),
    "fsdp1 not sharded": ("fsdp1", (), {"sharding_strategy": ShardingStrategy.NO_SHARD}),
    "fsdp2 with compiled blocks": ("fsdp2", ("compile",), {}),
    "ddp into buckets, scaled": (
        "ddp", ("freeze", "scale"), {"gradient_as_bucket_view": True, "find_unused_parameters": True},
    ),
}  # fmt: skip


def train_cases(rank: Rank) -> None:
    """Trains each case without a recording and with one, into a run of its own; no bit may change."""
    torch.use_deterministic_algorithms(mode=True)
    for number, name in enumerate(CASES):
        plain, recorded = _train(rank, name, None), _train(rank, name, f"{rank.out}-{number}")
        for key, tensor in plain.items():
            assert torch.equal(tensor, recorded[key]), f"{name}: recording changed {key}"


def _train(rank: Rank, name: str, out: str | None) -> dict[str, Tensor]:
    from msprobe import record

    way, prepared, options = CASES[name]
    model = make_tied_model(CONFIG)
    _prepare(model, prepared)
    model = wrap(way, model, **options)
    if "compile" in prepared:
        for module in model.modules():
            if isinstance(module, Block):
                module.compile(backend="eager")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, enabled="scale" in prepared)
    what: dict[str, Any] = {"what": "statistics,sketch", "optimizer_state": True, "updated_parameters": True}
    with record(model, out, optimizer=optimizer, **what) if out else contextlib.nullcontext():
        for step in range(2):
            words, targets, positions = (part_of(rank.rank, rank.world)(t) for t in make_batch(CONFIG, step))
            optimizer.zero_grad()
            scaler.scale(loss_of(model(words, positions).float(), targets)).backward()
            scaler.step(optimizer)
            scaler.update()
    return {key: getattr(p, "_local_tensor", p).detach().clone() for key, p in model.named_parameters()}


def _prepare(model: nn.Module, prepared: tuple[str, ...]) -> None:
    if "freeze" in prepared:
        model.norm.bias.requires_grad = False  # type: ignore[union-attr]
    if "checkpoint" in prepared:
        apply_activation_checkpointing(model, check_fn=lambda module: isinstance(module, Block))
