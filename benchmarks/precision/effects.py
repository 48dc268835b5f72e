"""Checks that a planted fault acts, with plain PyTorch and without the tool under test.

A fault that changes nothing, or that already differs in what goes into its place, would make the benchmark lie.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from benchmarks.precision.training import Plan, backward, batches, train

if TYPE_CHECKING:
    from benchmarks.precision.architectures import Architecture
    from benchmarks.precision.faults import Fault


class InertFaultError(AssertionError):
    """A fault does not change what it should, or changes something before it."""


Seen = dict[str, list[torch.Tensor]]


def effect(fault: Fault, candidate: nn.Module, reference: nn.Module, case: tuple[Architecture, int, Plan]) -> float:
    """Gives the relative L2 change at the fault's place; raises where there is none."""
    architecture, layer, plan = case
    plans = fault.plans(plan)
    if fault.acts_on == "update":
        size = _weights_apart(candidate, reference, architecture, plans)
    else:
        part = fault.watch or fault.place.part
        path = architecture.path(part, layer) if part else ""
        seen = [_watch(m, path, architecture, p) for m, p in zip((candidate, reference), plans, strict=True)]
        size = _seen_apart(fault, *seen)
    if not size > 0:
        raise InertFaultError(f"{fault.kind} on {architecture.name}, layer {layer}: nothing changes")
    return size


#: What must be equal on both sides for each kind of proof: everything before the fault.
_BEFORE = {
    "input": (),
    "state": ("input",),
    "output": ("input", "state"),
    "gradient": ("input", "state", "output", "gradient_in"),
    "loss": ("input", "state", "output"),
}


def _seen_apart(fault: Fault, candidate: Seen, reference: Seen) -> float:
    for what in _BEFORE[fault.acts_on]:
        if _distance(candidate[what], reference[what]) > 0:
            raise InertFaultError(f"{fault.kind} changes the {what} of its place, not only the {fault.acts_on}")
    if fault.acts_on == "state" and not _distance(candidate["output"], reference["output"]) > 0:
        raise InertFaultError(f"{fault.kind} changes no output")
    proof = "gradient_in" if fault.acts_on == "loss" else fault.acts_on
    return _distance(candidate[proof], reference[proof])


def _watch(model: nn.Module, path: str, architecture: Architecture, plan: Plan) -> Seen:
    """Runs the first micro-step; keeps what went into and out of a module, what it holds, and its gradients."""
    module = model.get_submodule(path)
    seen: Seen = {"input": [], "output": [], "gradient": [], "gradient_in": [], "state": _own_state(module)}

    def hook(_: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], output: object) -> None:
        seen["input"] += _tensors((*args, *kwargs.values()))
        results = tuple(output.values()) if isinstance(output, dict) else output
        results = results if isinstance(results, tuple) else (results,)
        seen["output"] += _tensors(results)
        if isinstance(results[0], torch.Tensor) and results[0].requires_grad:
            results[0].register_hook(lambda g: seen["gradient_in"].append(g.clone()))

    handle = module.register_forward_hook(hook, with_kwargs=True)
    torch.manual_seed(plan.seed)
    model.zero_grad()
    backward(model, next(batches(architecture, plan))[0], plan)
    handle.remove()
    seen["gradient"] = [p.grad.clone() for p in module.parameters() if p.grad is not None]
    model.zero_grad()
    return seen


def _own_state(module: nn.Module) -> list[torch.Tensor]:
    return [t.detach().clone() for t in (*module.parameters(recurse=False), *module.buffers(recurse=False))]


def _tensors(values: tuple[object, ...]) -> list[torch.Tensor]:
    flat = [v for value in values for v in (value if isinstance(value, tuple) else (value,))]
    return [v.detach().clone() for v in flat if isinstance(v, torch.Tensor)]


def _weights_apart(
    candidate: nn.Module, reference: nn.Module, architecture: Architecture, plans: tuple[Plan, Plan]
) -> float:
    """Trains both for one step more than the fault needs, and compares the weights."""
    for model, plan in zip((candidate, reference), plans, strict=True):
        train(model, architecture, replace(plan, steps=2))
    return _distance(list(candidate.parameters()), list(reference.parameters()))


def _distance(candidate: list[torch.Tensor], reference: list[torch.Tensor]) -> float:
    """Relative L2 distance over all tensors; infinite where one side alone is not finite."""
    worst = 0.0
    for x, y in zip(candidate, reference, strict=True):
        if bool((x.isfinite() != y.isfinite()).any()):
            return float("inf")
        x, y = (torch.nan_to_num(t.detach().double()) for t in (x, y))
        worst = max(worst, float((x - y).norm() / y.norm().clamp_min(1e-300)))
    return worst
