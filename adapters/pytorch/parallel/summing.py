"""Rules for operators that sum: products of matrices, reductions, norms, losses, attention.

A sum over a dimension that an axis cuts gives values that are partial along that axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from msprobe.adapters.pytorch.parallel.fitting import (
    Call,
    LostError,
    Rule,
    aligned,
    passed_on,
    require_plain,
    same_dim,
    settled,
)
from msprobe.adapters.pytorch.parallel.spreads import Dim, Spread, axes_of, is_plain, local_size, plain

_REDUCTIONS: Final = {"sum": "sum", "mean": "avg", "amax": "max", "amin": "min"}


# -- contractions


def _product(a: Spread, b: Spread, dims: Sequence[Dim], inner: tuple[Dim, Dim]) -> Spread:
    """Makes the result of a sum of products over ``inner``: partial along the axes that cut it."""
    one, other = inner
    cut = axes_of(one) | axes_of(other)
    lost: set[str] = set()
    if not is_plain(one) and not is_plain(other) and not same_dim(one, other):
        lost |= cut
    partial = [*passed_on(a, b), *((axis, "sum") for axis in cut)]
    return settled(dims, partial, lost)


def _mm(call: Call) -> list[Spread]:
    a, b = call.spread(0), call.spread(1)
    return [_product(a, b, [*a.dims[:-1], *b.dims[:-2], b.dims[-1]], (a.dims[-1], b.dims[-2]))]


def _mv(call: Call) -> list[Spread]:
    a, b = call.spread(0), call.spread(1)
    return [_product(a, b, a.dims[:-1], (a.dims[-1], b.dims[-1]))]


def _bmm(call: Call) -> list[Spread]:
    a, b = call.spread(0), call.spread(1)
    batch, lost = aligned([Spread((a.dims[0],)), Spread((b.dims[0],))], (local_size(a.dims[0]),))
    return [_product(a, b, [batch[0], a.dims[1], b.dims[2]], (a.dims[2], b.dims[1])).with_unknown(lost)]


def _addmm(call: Call) -> list[Spread]:
    bias, a, b = call.spread(0), call.spread(1), call.spread(2)
    product = _product(a, b, [a.dims[0], b.dims[1]], (a.dims[1], b.dims[0]))
    dims, lost = aligned([product, bias], product.shape)
    if product.partial != bias.partial:  # a whole bias added on each rank to partial values
        lost |= {axis for axis, _ in (*product.partial, *bias.partial)}
    return [settled(dims, product.partial if not lost else (), lost)]


def _linear(call: Call) -> list[Spread]:
    x, w = call.spread(0), call.spread(1)
    made = _product(x, w, [*x.dims[:-1], w.dims[0]], (x.dims[-1], w.dims[1]))
    bias = call.arg(2, "bias")
    if bias is None:
        return [made]
    dims, lost = aligned([made, call.spread_of(bias)], made.shape)
    return [settled(dims, (), lost.union(axis for axis, _ in made.partial))]


# -- reductions, and operators along a dimension


def _reduction(call: Call) -> list[Spread]:
    spread = call.spread(0)
    short = call.name.partition(".")[0]
    asked = call.args[1] if len(call.args) > 1 and not isinstance(call.args[1], bool) else call.kwargs.get("dim")
    rank = len(spread.dims)
    listed = [asked] if isinstance(asked, int) else list(asked or range(rank))
    reduced = {dim % rank for dim in listed} if rank else set()
    keeps = len(call.shape) == rank
    op = _REDUCTIONS[short]
    if spread.partial and op not in ("sum", "avg"):
        raise LostError(axis for axis, _ in spread.partial)
    cut = {axis for dim in reduced for axis in axes_of(spread.dims[dim])}
    dims = [((plain(1),) if i in reduced else dim) for i, dim in enumerate(spread.dims) if keeps or i not in reduced]
    return [settled(dims, [*spread.partial, *((axis, op) for axis in cut)])]


def _along(call: Call) -> list[Spread]:
    """Operators that work along one dimension and keep the shape: softmax, cumsum, sort."""
    spread = call.spread(0)
    dim = call.arg(1, "dim", -1)
    if spread.dims and isinstance(dim, int):
        require_plain(spread.dims[dim])
    if spread.partial:
        raise LostError(axis for axis, _ in spread.partial)
    return [spread] * len(call.outputs)


def _along_backward(call: Call) -> list[Spread]:
    gradient, output, dim = call.spread(0), call.spread(1), call.args[2]
    dims, lost = aligned([gradient, output], call.shape)
    require_plain(dims[dim])
    return [settled(dims, passed_on(gradient, output, allowed=0), lost)]


def _norm(call: Call) -> list[Spread]:
    """Layer and RMS norm: out, and the statistics of each row."""
    spread = call.spread(0)
    normalized = len(call.args[1])
    outer = len(spread.dims) - normalized
    require_plain(*spread.dims[outer:])
    passed_on(spread, allowed=-1)
    if spread.partial:
        raise LostError(axis for axis, _ in spread.partial)
    rows = Spread((*spread.dims[:outer], *((plain(1),) for _ in range(normalized))))
    return [replace(spread, known_by="propagated"), *[rows] * (len(call.outputs) - 1)]


def _norm_backward(call: Call) -> list[Spread]:
    gradient, spread = call.spread(0), call.spread(1)
    outer = len(spread.dims) - len(call.args[2])
    dims, lost = aligned([gradient, spread], spread.shape)
    require_plain(*dims[outer:])
    partial = passed_on(gradient)
    summed = [*partial, *((axis, "sum") for dim in dims[:outer] for axis in axes_of(dim))]
    weight = settled(dims[outer:], summed, lost)
    return [settled(dims, partial, lost), *[weight] * (len(call.outputs) - 1)]


# -- tables, losses, attention


def _embedding(call: Call) -> list[Spread]:
    table, indices = call.spread(0), call.spread(1)
    partial = [*passed_on(table), *((axis, "sum") for axis in axes_of(table.dims[0]))]
    return [settled([*indices.dims, *table.dims[1:]], partial)]


def _embedding_backward(call: Call) -> list[Spread]:
    gradient, indices = call.spread(0), call.spread(1)
    dims, lost = aligned([gradient, Spread((*indices.dims, gradient.dims[-1]))], gradient.shape)
    partial = [*passed_on(gradient), *((axis, "sum") for dim in dims[:-1] for axis in axes_of(dim))]
    return [settled([(plain(call.args[2]),), dims[-1]], partial, lost)]


def _loss(call: Call) -> list[Spread]:
    """Losses with a ``reduction``: over entries that are cut they are partial."""
    short = call.name.partition(".")[0]
    at = 3 if short.startswith("nll_loss") else 2
    operands = [call.spread(0), call.spread(1)]
    if short.startswith("nll_loss"):
        require_plain(operands[0].dims[-1])
        dims, lost = aligned([Spread(operands[0].dims[:-1]), operands[1]], operands[1].shape)
    else:
        dims, lost = aligned(operands, operands[0].shape)
    passed_on(*operands)
    reduction = call.arg(at, "reduction", 1)
    if reduction == 0:
        return [settled(dims, (), lost)]
    partial = [(axis, "avg" if reduction == 1 else "sum") for dim in dims for axis in axes_of(dim)]
    return [settled((), partial, lost), settled((), [(axis, "sum") for axis, _ in partial], lost)]


def _loss_backward(call: Call) -> list[Spread]:
    spread, target = call.spread(1), call.spread(2)
    like = Spread((*target.dims, spread.dims[-1])) if len(target.dims) < len(spread.dims) else target
    dims, lost = aligned([spread, like], spread.shape)
    return [settled(dims, (), lost)]


def _attention(call: Call) -> list[Spread]:
    q, k, v = (call.spread(i) for i in range(3))
    require_plain(k.dims[-2], v.dims[-2], q.dims[-1], k.dims[-1])
    heads, lost = aligned([Spread(s.dims[:-2]) for s in (q, k, v)], q.shape[:-2])
    rows = settled([*heads, q.dims[-2]], (), lost)
    return [settled([*heads, q.dims[-2], v.dims[-1]], (), lost), *[rows] * (len(call.outputs) - 1)]


def _attention_backward(call: Call) -> list[Spread]:
    q, k, v = (call.spread(i) for i in range(1, 4))
    require_plain(k.dims[-2], v.dims[-2])
    summed = [(axis, "sum") for axis in axes_of(q.dims[-2])]
    return [settled(q.dims), settled(k.dims, summed), settled(v.dims, summed)]


SUMS: Final[dict[str, Rule]] = {
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(("_softmax", "_log_softmax", "cumsum", "sort"), _along),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), _along_backward),
    **dict.fromkeys(("native_layer_norm", "_fused_rms_norm"), _norm),
    **dict.fromkeys(("native_layer_norm_backward", "_fused_rms_norm_backward"), _norm_backward),
    **dict.fromkeys(("nll_loss_forward", "mse_loss", "binary_cross_entropy_with_logits"), _loss),
    **dict.fromkeys(("nll_loss_backward", "mse_loss_backward"), _loss_backward),
    **dict.fromkeys(
        ("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention",
         "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention"), _attention
    ),
    **dict.fromkeys(
        ("_scaled_dot_product_flash_attention_for_cpu_backward", "_scaled_dot_product_flash_attention_backward",
         "_scaled_dot_product_efficient_attention_backward", "_scaled_dot_product_cudnn_attention_backward"),
        _attention_backward,
    ),
    "mm": _mm, "mv": _mv, "dot": _mv, "bmm": _bmm, "addmm": _addmm, "linear": _linear, "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
}  # fmt: skip
