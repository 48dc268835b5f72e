"""Checks that a planted fault acts, with plain PyTorch and without the tool under test.

A fault that changes nothing, or that already differs in what goes into its place, would make the benchmark lie.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from benchmarks.precision.architectures import Architecture
from benchmarks.precision.faults import Fault
from benchmarks.precision.training import Plan, backward, batches, train


class InertFaultError(AssertionError):
    """A fault does not change what it should, or changes something before it."""


def effect(fault: Fault, candidate: nn.Module, reference: nn.Module, case: tuple[Architecture, int, Plan]) -> float:
    """Gives the relative L2 change at the fault's place; raises where there is none."""
    architecture, layer, plan = case
    plans = fault.plans(plan)
    if fault.acts_on == "update":
        size = _weights_apart(candidate, reference, architecture, plans)
    elif fault.acts_on == "state":
        size = _state_apart(*(model.get_submodule(architecture.path(fault.place.part, layer)) for model in (candidate, reference)))
    else:
        path = architecture.path(fault.place.part, layer) if fault.place.part else ""
        seen = [_watch(m, path, architecture, p) for m, p in zip((candidate, reference), plans, strict=True)]
        size = _seen_apart(fault, *seen)
    if not size > 0:
        raise InertFaultError(f"{fault.kind} on {architecture.name}, layer {layer}: nothing changes")
    return size


def _seen_apart(fault: Fault, candidate: dict[str, list[torch.Tensor]], reference: dict[str, list[torch.Tensor]]) -> float:
    quiet = {"input": (), "output": ("input",), "gradient": ("input", "output", "gradient_in")}[fault.acts_on]
    for what in quiet if fault.place.part else quiet[:2]:
        if _distance(candidate[what], reference[what]) > 0:
            raise InertFaultError(f"{fault.kind} changes the {what} of its place, not only the {fault.acts_on}")
    return _distance(candidate[fault.acts_on], reference[fault.acts_on])


def _watch(model: nn.Module, path: str, architecture: Architecture, plan: Plan) -> dict[str, list[torch.Tensor]]:
    """Runs the first micro-step; keeps what went into and out of a module and its gradients."""
    seen: dict[str, list[torch.Tensor]] = {"input": [], "output": [], "gradient": [], "gradient_in": []}

    def hook(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object], output: object) -> None:
        seen["input"] += _tensors((*args, *kwargs.values()))
        results = output if isinstance(output, tuple) else tuple(output.values()) if isinstance(output, dict) else (output,)
        seen["output"] += _tensors(results)
        for tensor in results[:1]:
            if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
                tensor.register_hook(lambda g: seen["gradient_in"].append(g.clone()))

    handle = model.get_submodule(path).register_forward_hook(hook, with_kwargs=True)
    torch.manual_seed(plan.seed)
    model.zero_grad()
    backward(model, next(batches(architecture, plan))[0], plan)
    handle.remove()
    seen["gradient"] = [p.grad.clone() for p in model.get_submodule(path).parameters() if p.grad is not None]
    model.zero_grad()
    return seen


def _tensors(values: tuple[object, ...]) -> list[torch.Tensor]:
    flat = [v for value in values for v in (value if isinstance(value, tuple) else (value,))]
    return [v.detach().clone() for v in flat if isinstance(v, torch.Tensor)]


def _state_apart(candidate: nn.Module, reference: nn.Module) -> float:
    sides = [[*m.parameters(recurse=False), *m.buffers(recurse=False)] for m in (candidate, reference)]
    return _distance(*sides)


def _weights_apart(candidate: nn.Module, reference: nn.Module, architecture: Architecture, plans: tuple[Plan, Plan]) -> float:
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
