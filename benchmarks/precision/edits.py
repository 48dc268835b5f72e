"""Ways to change what a module of a living model computes, without touching its structure."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.precision.decoder import Attention

Tensors = Callable[[torch.Tensor], torch.Tensor]


def edit_output(module: nn.Module, change: Tensors) -> None:
    """Lets the module's own code end with ``change`` of its (first) result."""
    inner = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        result = inner(*args, **kwargs)
        return (change(result[0]), *result[1:]) if isinstance(result, tuple) else change(result)

    module.forward = forward


def replace_forward(module: nn.Module, forward: Tensors) -> None:
    """Lets the module compute something else of its first argument."""
    module.forward = forward


def before_forward(module: nn.Module, act: Callable[..., object]) -> None:
    """Lets the module's own code begin with ``act(*args, **kwargs)``."""
    inner = module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        act(*args, **kwargs)
        return inner(*args, **kwargs)

    module.forward = forward


def add_noise(module: nn.Module, strength: float, seed: int) -> None:
    """Adds normal noise of a standard deviation to the output, from a generator of its own."""
    generator = torch.Generator().manual_seed(seed)
    edit_output(module, lambda x: x + strength * torch.randn(x.shape, generator=generator, dtype=x.dtype))


def linear_without_bias(module: nn.Linear) -> None:
    replace_forward(module, lambda x: functional.linear(x, module.weight))


def linear_transposed(module: nn.Linear) -> None:
    replace_forward(module, lambda x: functional.linear(x, module.weight.t(), module.bias))


def linear_in_bf16(module: nn.Linear) -> None:
    """Computes in bf16 and casts back, as a forgotten cast does."""

    def forward(x: torch.Tensor) -> torch.Tensor:
        bias = None if module.bias is None else module.bias.bfloat16()
        return functional.linear(x.bfloat16(), module.weight.bfloat16(), bias).to(x.dtype)

    replace_forward(module, forward)


def clip_output(module: nn.Module, share: float) -> None:
    """Clamps the output so that about ``share`` of the elements of its first call are cut."""
    limit: list[float] = []

    def clipped(x: torch.Tensor) -> torch.Tensor:
        if not limit:
            limit.append(float(x.detach().abs().flatten().quantile(1 - share)))
        return x.clamp(-limit[0], limit[0])

    edit_output(module, clipped)


def own_dropout_seed(module: nn.Module, seed: int) -> None:
    """Draws the dropout mask from another seed and leaves the global generator as it was."""
    inner = module.forward

    def forward(x: torch.Tensor) -> torch.Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed + 1)
            dropped = inner(x)
        inner(x.detach())
        result: torch.Tensor = dropped
        return result

    replace_forward(module, forward)


class _ScaledGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradients[0] * ctx.factor, None


def scale_gradient(module: nn.Module, factor: float) -> None:
    """Multiplies what flows backward through the module, and nothing that flows forward."""
    edit_output(module, lambda x: _ScaledGradient.apply(x, factor))  # type: ignore[no-untyped-call]


def swap_children(module: nn.Module, first: str, second: str) -> None:
    """Lets the module's own code call each of two children where it means the other."""
    children = (getattr(module, first), getattr(module, second))
    module.__dict__[second], module.__dict__[first] = children


def empty_mask(module: nn.Module, row: int) -> None:
    """Lets one token of the first sample see nothing, so that its softmax is 0/0."""
    if isinstance(module, Attention):
        inner = module.mask

        def mask(scores: torch.Tensor) -> torch.Tensor:
            return inner(scores) + _blind_row(scores, row)

        module.mask = mask  # type: ignore[method-assign]
        return
    forward_of_attention = module.forward

    def forward(hidden_states: torch.Tensor, *, attention_mask: torch.Tensor, **kwargs: Any) -> Any:
        return forward_of_attention(
            hidden_states=hidden_states, attention_mask=attention_mask + _blind_row(attention_mask, row), **kwargs
        )

    module.forward = forward


def _blind_row(scores: torch.Tensor, row: int) -> torch.Tensor:
    blind = torch.zeros(scores.shape, dtype=scores.dtype)
    blind[0, ..., row, :] = -math.inf
    return blind


def scale_residual(module: nn.Module, factor: float) -> None:
    """Scales the residual branch of a block: its result is ``block(x) + (factor - 1) x``."""
    inner = module.forward

    def forward(x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        result: torch.Tensor = inner(x, *args, **kwargs) + (factor - 1) * x
        return result

    module.forward = forward


def wrong_scale(module: nn.Module, factor: float) -> None:
    """Scales the attention scores by another factor than one over the root of the head size."""
    name = "scaling" if hasattr(module, "scaling") else "scale"
    setattr(module, name, getattr(module, name) * factor)


def wrong_eps(module: nn.Module, factor: float) -> None:
    """Multiplies the eps of a norm."""
    name = "variance_epsilon" if hasattr(module, "variance_epsilon") else "eps"
    setattr(module, name, getattr(module, name) * factor)


@torch.no_grad()
def wrong_weight(module: nn.Module, seed: int) -> None:
    """Overwrites one in ten rows of a weight with others, as a load with a wrong shard does."""
    weight = module.weight
    assert isinstance(weight, torch.Tensor)
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randperm(weight.shape[0], generator=generator)[: max(2, weight.shape[0] // 10)]
    weight[rows] = weight[rows.roll(1)].clone()


@torch.no_grad()
def stale_buffer(module: nn.Module) -> str:
    """Leaves a buffer at values that another config would give; returns the buffer's name."""
    name = next(n for n in ("inv_freq", "slopes", "running_mean") if hasattr(module, n))
    buffer = getattr(module, name)
    buffer.copy_(torch.zeros_like(buffer) if name == "running_mean" else buffer**1.25)
    return name
