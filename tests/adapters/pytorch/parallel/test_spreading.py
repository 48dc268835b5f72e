"""What is followed through operators is true: the parts that it tells make what one process computes with the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch.utils._python_dispatch import TorchDispatchMode

from msprobe.adapters.pytorch.parallel.mesh import Mesh
from msprobe.adapters.pytorch.parallel.spreading import SpreadTracker
from msprobe.adapters.pytorch.parallel.spreads import of_layout, to_layout
from msprobe.core.placement import Layout

SIZES = {"tp": 2}


class _Following(TorchDispatchMode):
    def __init__(self, tracker: SpreadTracker) -> None:
        super().__init__()
        self.tracker = tracker

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.tracker.ran(func, args, kwargs or {}, result)
        return result


def _cut(whole: Tensor, layout: Layout) -> Tensor:
    starts, length = layout.runs()
    index = torch.cat([torch.arange(s, s + length) for s in starts.tolist()])
    return whole.reshape(-1)[index].reshape(layout.shape)


def _results(function: Callable[..., Any], inputs: list[Tensor], gradients: bool) -> list[Tensor]:
    leaves = [x.clone().requires_grad_(x.is_floating_point() and gradients) for x in inputs]
    out = function(*leaves)
    outs = list(out) if isinstance(out, tuple) else [out]
    if gradients:
        wanted = [x for x in leaves if x.requires_grad]
        outs += torch.autograd.grad(outs[0], wanted, torch.ones_like(outs[0]))
    return outs


def _local(
    function: Callable[..., Any], wholes: list[Tensor], layouts: list[Layout], rank: int, gradients: bool
) -> list[tuple[Tensor, Layout | None]]:
    tracker = SpreadTracker(Mesh.of_grid(SIZES, rank))
    inputs = [_cut(x, layout) for x, layout in zip(wholes, layouts, strict=True)]

    def told(*leaves: Tensor) -> Any:
        for x, layout in zip(leaves, layouts, strict=True):
            tracker.tell(x, of_layout(layout))
        return function(*leaves)

    with _Following(tracker):
        outs = _results(told, inputs, gradients)
    found = []
    for out in outs:
        spread = tracker.look(out)
        found.append((out.detach(), to_layout(spread, ("tp",)) if spread is not None else None))
    return found


def _check(function: Callable[..., Any], wholes: list[Tensor], cut: Any, *, gradients: bool = False) -> list[str]:
    """Checks every output against the whole computation; gives what each one is along the axis."""
    whole_outs = _results(function, wholes, gradients)
    by_rank = [
        _local(function, wholes, [place(x, rank) for place, x in zip(cut, wholes, strict=True)], rank, gradients)
        for rank in range(SIZES["tp"])
    ]
    kinds = []
    for i, expected in enumerate(whole_outs):
        parts = [outs[i] for outs in by_rank]
        layout = parts[0][1]
        kind = layout.placements[0].kind if layout is not None else "replicate"
        kinds.append(kind)
        if layout is not None and kind == "partial":
            total = sum(part for part, _ in parts) / (2 if layout.placements[0].op == "avg" else 1)
            torch.testing.assert_close(total, expected.detach())
        elif kind != "unknown":
            for part, own in parts:
                torch.testing.assert_close(part, _cut(expected.detach(), own) if own else expected.detach())
    return kinds


def keep(x: Tensor, rank: int) -> Layout:
    return Layout.whole(x.shape)


def shard(dim: int, **options: Any) -> Callable[[Tensor, int], Layout]:
    return lambda x, rank: Layout.whole(x.shape).shard("tp", dim, coordinate=rank, parts=2, **options)


def zigzag(dim: int) -> Callable[[Tensor, int], Layout]:
    return lambda x, rank: Layout.whole(x.shape).zigzag("tp", dim, coordinate=rank, size=2)


X, Y = torch.arange(96.0).reshape(2, 6, 8) / 50, torch.linspace(-1, 1, 96).reshape(2, 6, 8)
W, V = torch.linspace(-1, 1, 128).reshape(16, 8), torch.linspace(-1, 1, 128).reshape(8, 16)
IDS = torch.arange(12).reshape(2, 6) % 5
Z = torch.linspace(-1, 2, 128).reshape(2, 8, 8)
TABLE = torch.linspace(-1, 1, 40).reshape(5, 8)


def _split_heads(x):
    return x.unflatten(-1, (-1, 2)).transpose(1, 2)


def _loss(x, t):
    return F.cross_entropy(x.flatten(0, 1), t.flatten())


CASES: dict[str, tuple[Any, ...]] = {
    "column linear": (F.linear, [X, W], [keep, shard(0)], ["shard"]),
    "row linear": (F.linear, [torch.cat([X, Y], -1), V], [shard(2), shard(1)], ["partial"]),
    "column then row": (
        lambda x, w, v: F.linear(F.silu(F.linear(x, w)), v),
        [X, W, V],
        [keep, shard(0), shard(1)],
        ["partial"],
    ),
    "heads": (_split_heads, [X], [shard(2)], ["shard"]),
    "heads and back": (lambda x: _split_heads(x).transpose(1, 2).flatten(2), [X], [shard(2)], ["shard"]),
    "fused q k v": (
        lambda x, w: F.linear(x, w).chunk(2, -1),
        [X, W],
        [keep, shard(0, blocks=(8, 8))],
        ["shard", "shard"],
    ),
    "contiguous fused": (lambda x, w: F.linear(x, w).chunk(2, -1), [X, W], [keep, shard(0)], ["unknown", "unknown"]),
    "flattened sequence": (lambda x: x.flatten(0, 1) * 2, [X], [shard(1)], ["shard"]),
    "flattened zigzag": (lambda x: x.flatten(0, 1).unflatten(0, (2, -1)).square(), [Z], [zigzag(1)], ["shard"]),
    "attention by heads": (
        lambda q, k, v: F.scaled_dot_product_attention(_split_heads(q), _split_heads(k), _split_heads(v)),
        [X, Y, X + Y],
        [shard(2), shard(2), shard(2)],
        ["shard"],
    ),
    "softmax over the cut": (lambda x: x.softmax(-1), [X], [shard(2)], ["unknown"]),
    "softmax beside it": (lambda x: x.softmax(1), [X], [shard(2)], ["shard"]),
    "sum over the cut": (lambda x: x.sum(1), [X], [shard(1)], ["partial"]),
    "mean over all": (lambda x: x.mean(), [X], [shard(1)], ["partial"]),
    "largest": (lambda x: x.sum(0), [X], [shard(2)], ["shard"]),
    "square of a partial sum": (lambda x: x.sum(1).square(), [X], [shard(1)], ["unknown"]),
    "scaled partial sum": (lambda x: 3 * x.sum(1) / 2, [X], [shard(1)], ["partial"]),
    "partial plus whole": (lambda x, y: x.sum(1) + y, [X, Y[:, 0]], [shard(1), keep], ["unknown"]),
    "layer norm of rows": (lambda x: F.layer_norm(x, (8,)), [X], [shard(1)], ["shard"]),
    "rms norm of a cut row": (lambda x: F.rms_norm(x, x.shape[-1:]), [X], [shard(2)], ["unknown"]),
    "table by width": (F.embedding, [IDS, TABLE], [keep, shard(1)], ["shard"]),
    "words of a sequence": (F.embedding, [IDS, TABLE], [shard(1), keep], ["shard"]),
    "loss of parts": (
        lambda x, t: F.cross_entropy(x.flatten(0, 1), t.flatten()),
        [X, IDS],
        [shard(1)] * 2,
        ["partial"],
    ),
    "rotated pairs": (lambda x: torch.cat([-x[..., 4:], x[..., :4]], -1), [X], [shard(1)], ["shard"]),
    "stacked": (lambda x, y: torch.stack([x, y]), [X, Y], [shard(1), shard(1)], ["shard"]),
}


@pytest.mark.parametrize("name", list(CASES))
def test_parts_are_told_truly(name):
    function, wholes, cut, expected = CASES[name]
    assert _check(function, wholes, cut) == expected


GRADIENTS: dict[str, tuple[Any, ...]] = {
    "column linear": (F.linear, [X, W], [keep, shard(0)], ["shard", "partial", "shard"]),
    "row linear": (F.linear, [torch.cat([X, Y], -1), V], [shard(2), shard(1)], ["partial", "shard", "shard"]),
    "norm of a cut sequence": (
        lambda x, w, b: F.layer_norm(x, (8,), w, b),
        [X, X[0, 0], Y[0, 0]],
        [shard(1), keep, keep],
        ["shard", "shard", "partial", "partial"],
    ),
    "rms norm of a cut sequence": (
        lambda x, w: F.rms_norm(x, (8,), w),
        [X, X[0, 0]],
        [shard(1), keep],
        ["shard", "shard", "partial"],
    ),
    "words of a cut sequence": (F.embedding, [IDS, TABLE], [shard(1), keep], ["shard", "partial"]),
    "loss of parts": (
        lambda x, w, t: F.cross_entropy(F.linear(x, w).flatten(0, 1), t.flatten(), reduction="sum"),
        [X, W, IDS],
        [shard(1), keep, shard(1)],
        ["partial", "shard", "partial"],
    ),
}


@pytest.mark.parametrize("name", list(GRADIENTS))
def test_gradients_are_told_truly(name):
    function, wholes, cut, expected = GRADIENTS[name]
    assert _check(function, wholes, cut, gradients=True) == expected


def test_a_higher_order_operator_tells_nothing_of_the_axes_of_its_operands():
    tracker = SpreadTracker(Mesh.of_grid(SIZES, 0))
    x, y = torch.ones(3, 4), torch.ones(3, 4)
    tracker.tell(x, of_layout(Layout.whole((6, 4)).shard("tp", 0, coordinate=0, parts=2)))
    tracker.ran(torch.ops.higher_order.cond, (x,), {}, y)
    spread = tracker.look(y)
    assert spread is not None
    assert spread.unknown == {"tp"}


def test_what_is_overwritten_is_as_the_source_is():
    tracker = SpreadTracker(Mesh.of_grid(SIZES, 0))
    x, buffer = torch.ones(3, 4), torch.zeros(3, 4)
    tracker.tell(buffer, of_layout(Layout.whole((3, 4)).partial("tp")))
    with _Following(tracker):
        buffer.copy_(x)
    assert tracker.look(buffer) is None
