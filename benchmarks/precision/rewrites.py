"""Other ways to compute the same: what a new kernel, another library or another order of sums does to numbers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.precision.decoder import Attention
from benchmarks.precision.edits import edit_output, replace_forward


def linear_by_chunks(model: nn.Module) -> None:
    """Sums every linear layer over two halves of its inner axis."""

    def rewrite(module: nn.Linear) -> None:
        def forward(x: torch.Tensor) -> torch.Tensor:
            half = x.shape[-1] // 2
            partial = x[..., half:] @ module.weight[:, half:].t() + x[..., :half] @ module.weight[:, :half].t()
            return partial if module.bias is None else partial + module.bias

        replace_forward(module, forward)

    _each(model, nn.Linear, rewrite)


def linear_by_einsum(model: nn.Module) -> None:
    def rewrite(module: nn.Linear) -> None:
        def forward(x: torch.Tensor) -> torch.Tensor:
            product = torch.einsum("oi,...i->...o", module.weight, x)
            return product if module.bias is None else module.bias + product

        replace_forward(module, forward)

    _each(model, nn.Linear, rewrite)


def norm_by_formula(model: nn.Module) -> None:
    """Writes LayerNorm and RMSNorm out: other order, a division instead of a reciprocal root."""

    def layer_norm(module: nn.LayerNorm) -> None:
        def forward(x: torch.Tensor) -> torch.Tensor:
            centred = x - x.mean(-1, keepdim=True)
            return centred / (centred.square().mean(-1, keepdim=True) + module.eps).sqrt() * module.weight + module.bias

        replace_forward(module, forward)

    def rms_norm(module: Any) -> None:
        def forward(x: torch.Tensor) -> torch.Tensor:
            root = ((x * x).sum(-1, keepdim=True) / x.shape[-1] + module.variance_epsilon).sqrt()
            result: torch.Tensor = module.weight * (x / root)
            return result

        replace_forward(module, forward)

    _each(model, nn.LayerNorm, layer_norm)
    for module in model.modules():
        if hasattr(module, "variance_epsilon"):
            rms_norm(module)


def activation_by_formula(model: nn.Module) -> None:
    """Writes GELU and SiLU out."""
    for name, module in model.named_modules():
        if isinstance(module, nn.GELU):
            replace_forward(module, lambda x: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))))
        elif name.endswith("act_fn"):
            replace_forward(module, lambda x: x / (1 + (-x).exp()))


def softmax_by_formula(model: nn.Module) -> None:
    def rewrite(module: Attention) -> None:
        def weights(scores: torch.Tensor) -> torch.Tensor:
            place = torch.arange(scores.shape[-1])
            scores = scores - module.slopes[:, None, None] * (place[:, None] - place[None, :]).abs()
            powers = (scores.masked_fill(scores.isnan(), -math.inf) - scores.amax(-1, keepdim=True)).exp()
            powers = powers.tril() if module.causal else powers
            return powers / powers.sum(-1, keepdim=True)

        module.weights = weights  # type: ignore[method-assign]

    _each(model, Attention, rewrite)


def attention_by_kernel(model: nn.Module) -> None:
    """Uses the fused attention kernel with the distance bias and the causal mask as one added mask."""

    def rewrite(module: Attention) -> None:
        def forward(x: torch.Tensor) -> torch.Tensor:
            query, key, value = (module._split(part(x)) for part in (module.query, module.key, module.value))
            place = torch.arange(x.shape[1])
            mask = module.mask(-module.slopes[:, None, None] * (place[:, None] - place[None, :]).abs())
            mixed = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask.to(x.dtype))
            result: torch.Tensor = module.out(mixed.transpose(1, 2).reshape(x.shape))
            return result

        replace_forward(module, forward)

    _each(model, Attention, rewrite)


def scale_folded_into_query(model: nn.Module) -> None:
    """Scales the query instead of the scores."""

    def rewrite(module: Attention) -> None:
        def forward(x: torch.Tensor) -> torch.Tensor:
            query, key, value = (module._split(part(x)) for part in (module.query, module.key, module.value))
            mixed = module.weights((query * module.scale) @ key.transpose(-2, -1)) @ value
            result: torch.Tensor = module.out(mixed.transpose(1, 2).reshape(x.shape))
            return result

        replace_forward(module, forward)

    _each(model, Attention, rewrite)


def exact_extras(model: nn.Module) -> None:
    """Adds operators that change no bit to every activation and linear layer."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            edit_output(module, lambda x: x.neg().neg())
        elif name.endswith(("act", "act_fn")):
            edit_output(module, lambda x: x.contiguous() * 1.0)


def embedding_by_product(model: nn.Module) -> None:
    """Looks embeddings up by a product with one-hot rows."""

    def rewrite(module: nn.Embedding) -> None:
        def forward(ids: torch.Tensor) -> torch.Tensor:
            return functional.one_hot(ids, module.num_embeddings).to(module.weight.dtype) @ module.weight

        replace_forward(module, forward)

    _each(model, nn.Embedding, rewrite)


@torch.no_grad()
def one_rounding(model: nn.Module) -> None:
    """Moves every weight to the next number."""
    for parameter in model.parameters():
        parameter.copy_(torch.nextafter(parameter, torch.full_like(parameter, math.inf)))


@torch.no_grad()
def through_bf16(model: nn.Module) -> None:
    """Rounds the weights to bf16 and keeps them in their format, as a load from a bf16 checkpoint does."""
    for parameter in model.parameters():
        parameter.copy_(parameter.bfloat16())


class Wrapped(nn.Module):
    """Holds a model under ``module``, as data-parallel wrappers do."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


def compiled_parts(model: nn.Module, backend: str) -> None:
    """Compiles every MLP in place."""
    for name, module in model.named_modules():
        if name.endswith(".mlp"):
            module.compile(backend=backend)


def _each(model: nn.Module, kind: type, rewrite: Any) -> None:
    for module in model.modules():
        if isinstance(module, kind):
            rewrite(module)
