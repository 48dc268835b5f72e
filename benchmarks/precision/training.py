"""The training loop that both sides of every pair run, with and without a probe."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import nn
from torch.nn import functional

from benchmarks.precision.architectures import Architecture, Batch, logits


class Probe(Protocol):
    """What the loop needs of a recorder: to be told where an optimizer step ends."""

    def step(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """How a training goes; each field is something that pairs differ in."""

    steps: int = 2
    batch: int = 4
    accumulation: int = 1
    learning_rate: float = 1e-3
    weight_decay: float = 0.01
    clip: float = 0.0
    threads: int = 1
    seed: int = 0
    autocast: str = ""
    dtype: str = "float32"
    optimizer: str = "adamw"
    implementation: str = "for-each"
    first_position: int = 0
    zero_grad: bool = True
    scale_loss: bool = True
    #: "train"; "infer": forward passes alone, each in inference mode; "infer-loop": one inference mode around all.
    mode: str = "train"


def batches(architecture: Architecture, plan: Plan) -> Iterator[tuple[Batch, ...]]:
    """Yields the micro-batches of each step; the same samples for every accumulation."""
    generator = torch.Generator().manual_seed(plan.seed)
    for _ in range(plan.steps):
        whole = architecture.batch(generator, plan.batch)
        yield tuple(_edited(part, plan) for part in whole.split(plan.accumulation))


def train(model: nn.Module, architecture: Architecture, plan: Plan, probe: Probe | None = None) -> list[float]:
    """Trains for ``plan.steps`` steps and gives the losses."""
    if plan.mode != "train":
        return infer(model, architecture, plan, probe)
    optimizer = _optimizer(model, plan)
    losses = []
    with _threads(plan.threads):
        torch.manual_seed(plan.seed)
        for parts in batches(architecture, plan):
            if plan.zero_grad:
                optimizer.zero_grad(set_to_none=True)
            losses.append(sum(backward(model, part, plan) for part in parts))
            if plan.clip:
                nn.utils.clip_grad_norm_(model.parameters(), plan.clip)
            optimizer.step()
            if probe is not None:
                probe.step()
    return losses


def infer(model: nn.Module, architecture: Architecture, plan: Plan, probe: Probe | None = None) -> list[float]:
    """Runs the forward passes of ``plan.steps`` steps and gives the means of the logits."""
    model.eval()
    means = []
    with _threads(plan.threads), torch.inference_mode() if plan.mode == "infer-loop" else nullcontext():
        for parts in batches(architecture, plan):
            with torch.inference_mode(), _autocast(plan.autocast):
                means.append(sum(float(logits(model(**part.inputs)).float().mean()) for part in parts) / len(parts))
            if probe is not None:
                probe.step()
    return means


def backward(model: nn.Module, batch: Batch, plan: Plan) -> float:
    """Runs one forward and backward pass and gives the loss, scaled for accumulation."""
    with _autocast(plan.autocast):
        scores = logits(model(**batch.inputs))
    loss = functional.cross_entropy(scores.float().flatten(0, -2), batch.targets.flatten())
    if plan.scale_loss:
        loss = loss / plan.accumulation
    loss.backward()
    return float(loss.detach())


def _edited(batch: Batch, plan: Plan) -> Batch:
    inputs = dict(batch.inputs)
    if plan.first_position:
        inputs["position_ids"] = inputs["position_ids"] + plan.first_position
    if "pixels" in inputs:
        inputs["pixels"] = inputs["pixels"].to(getattr(torch, plan.dtype))
    return Batch(inputs, batch.targets)


def _optimizer(model: nn.Module, plan: Plan) -> torch.optim.Optimizer:
    if plan.optimizer == "sgd":
        return torch.optim.SGD(model.parameters(), plan.learning_rate, momentum=0.9)
    return torch.optim.AdamW(
        model.parameters(),
        plan.learning_rate,
        weight_decay=plan.weight_decay,
        foreach=plan.implementation == "for-each",
        fused=plan.implementation == "fused",
    )


def _autocast(dtype: str) -> AbstractContextManager[object]:
    return torch.autocast("cpu", dtype=getattr(torch, dtype)) if dtype else nullcontext()


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
