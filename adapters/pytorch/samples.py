"""A few elements of a tensor, the same ones each time: what is too dear to keep of a whole tensor.

To see by how much a step moved a parameter takes its values from before. A copy would cost as much memory as the model;
a fixed sample costs under one percent, knows no optimizer's formula, and estimates norms to 1 / sqrt(2 n).
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch
from torch import Tensor

from msprobe.adapters.pytorch import forms

#: Elements that are kept of a tensor: a norm over so many random ones is right to 0.8 % (one standard deviation).
#: Tensors of up to twice as many are kept whole.
SAMPLE: Final = 8192


def sample(tensor: Any) -> Tensor | None:
    """Gives a copy of up to ``2 * SAMPLE`` elements of the local tensor, flat, in memory order; None if it has none.

    The stride has no divisor in common with the last dimension, so that all columns of a matrix have their share.
    Call it inside ``isolated()``.
    """
    values = forms.values_of(tensor)
    if values is None or not values.numel():
        return None
    values = values.detach()
    flat = values.view(-1) if values.is_contiguous() else _in_memory_order(values)
    step = stride(values.numel(), values.shape[-1] if values.dim() else 1)
    return flat[::step].clone()


def stride(numel: int, columns: int) -> int:
    """Gives the distance of the elements that are kept: 1 keeps all."""
    step = numel // SAMPLE if numel > 2 * SAMPLE else 1
    while math.gcd(step, columns) > 1 and step < columns:
        step += 1
    return step


def _in_memory_order(values: Tensor) -> Tensor:
    """Gives a dense tensor of other strides (channels last, transposed) as it lies, without a copy, else a copy."""
    order = sorted(range(values.dim()), key=values.stride, reverse=True)
    turned = values.permute(order)
    return turned.view(-1) if turned.is_contiguous() else values.reshape(-1)


def change(before: Tensor, after: Tensor) -> tuple[Tensor, Tensor]:
    """Gives by how much the sample moved, and that divided by the norm that it had (NaN where that was 0)."""
    wide = torch.float64 if before.dtype == torch.float64 else torch.float32
    if before.is_complex():
        before, after = torch.view_as_real(before), torch.view_as_real(after)
    moved = after.to(wide) - before.to(wide)
    norm = torch.linalg.vector_norm(before.to(wide))
    return moved, torch.where(norm > 0, moved / norm, torch.nan)


def agreement(gradient: Tensor, momentum: Tensor) -> Tensor:
    """Gives 1 where gradient and momentum point the same way, -1 where they do not, 0 where either is zero."""
    return (torch.sign(gradient) * torch.sign(momentum)).to(torch.float32)
