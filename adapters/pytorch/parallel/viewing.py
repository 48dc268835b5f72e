"""Rules for operators that move elements without computing: views, slices, putting together, picking out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import torch

from msprobe.adapters.pytorch.parallel.fitting import Call, LostError, Rule, aligned, require_plain, settled
from msprobe.adapters.pytorch.parallel.spreads import (
    Dim,
    Factor,
    Spread,
    axes_of,
    global_dim,
    is_plain,
    joined,
    local_size,
    part_of_dim,
    permuted,
    plain,
    reshaped,
    whole,
)

# -- views


def _view(call: Call) -> list[Spread]:
    return [reshaped(call.spread(0), call.shape)]


def _permute(call: Call) -> list[Spread]:
    spread = call.spread(0)
    rank = len(spread.dims)
    short = call.name.partition(".")[0]
    if short == "t":
        order = list(range(rank))[::-1]
    elif short == "transpose":
        order = list(range(rank))
        a, b = call.args[1] % max(rank, 1), call.args[2] % max(rank, 1)
        order[a], order[b] = order[b], order[a]
    else:
        order = [i % rank for i in call.args[1]]
    return [permuted(spread, order)]


def _expand(call: Call) -> list[Spread]:
    spread = call.spread(0)
    new = len(call.shape) - len(spread.dims)
    dims: list[Dim] = [(plain(size),) for size in call.shape[:new]]
    dims += [
        dim if local_size(dim) == size else (plain(size),)
        for dim, size in zip(spread.dims, call.shape[new:], strict=True)
    ]
    return [replace(spread, dims=tuple(dims))]


def _unsqueeze(call: Call) -> list[Spread]:
    spread = call.spread(0)
    at = call.args[1] % (len(spread.dims) + 1)
    return [replace(spread, dims=(*spread.dims[:at], (plain(1),), *spread.dims[at:]))]


def _slices(call: Call) -> list[Spread]:
    """Slices, splits and selections along one dimension, by where each output begins."""
    spread = call.spread(0)
    short = call.name.partition(".")[0]
    dim = call.arg(2, "dim", 0) if short in ("split", "split_with_sizes") else call.arg(1, "dim", 0)
    dim %= len(spread.dims)
    if short in ("select", "unbind"):
        require_plain(spread.dims[dim])
        kept = replace(spread, dims=(*spread.dims[:dim], *spread.dims[dim + 1 :]))
        return [kept] * len(call.outputs)
    if short == "slice":
        size = local_size(spread.dims[dim])
        start, stop, step = call.arg(2, "start") or 0, call.arg(3, "end"), call.arg(4, "step", 1)
        start, stop, _ = slice(start, stop).indices(size)
        if step != 1:
            require_plain(spread.dims[dim])
            return [_with_dim(spread, dim, (plain(call.shape[dim]),))]
        return [_sliced(spread, dim, start, max(start, stop))]
    position, found = 0, []
    for output in call.outputs:
        found.append(_sliced(spread, dim, position, position + output.shape[dim]))
        position += output.shape[dim]
    return found


def _sliced(spread: Spread, dim: int, start: int, stop: int) -> Spread:
    part = part_of_dim(spread.dims[dim], start, stop)
    if part is None:
        lost = axes_of(spread.dims[dim])
        return _with_dim(spread, dim, (plain(stop - start),)).with_unknown(lost)
    return _with_dim(spread, dim, part)


def _with_dim(spread: Spread, dim: int, new: Dim) -> Spread:
    return replace(spread, dims=(*spread.dims[:dim], new, *spread.dims[dim + 1 :]))


# -- putting together and picking out


def _cat(call: Call) -> list[Spread]:
    spreads = [call.spread_of(tensor) for tensor in call.args[0] if tensor.numel() or tensor.ndim > 1]
    dim = call.arg(1, "dim", 0) % len(call.shape)
    partial = spreads[0].partial
    if any(spread.partial != partial for spread in spreads):
        raise LostError(axis for spread in spreads for axis, _ in spread.partial)
    outer = [_with_dim(spread, dim, (plain(1),)) for spread in spreads]
    dims, lost = aligned(outer, [1 if i == dim else size for i, size in enumerate(call.shape)])
    dims[dim] = _joined_dim([spread.dims[dim] for spread in spreads])
    return [settled(dims, partial, lost)]


def _joined_dim(parts: Sequence[Dim]) -> Dim:
    if all(is_plain(part) for part in parts):
        return (plain(sum(local_size(part) for part in parts)),)
    found = [global_dim(part) for part in parts]
    pieces = [piece for entry in found if entry is not None for piece in entry[1]]
    axes = {axis for part in parts for axis in axes_of(part)}
    sizes = {entry[0] if entry is not None else -1 for entry in found}
    ordered = sorted(pieces)
    overlaps = any(a + n > b for (a, n), (b, _) in pairwise(ordered))
    if len(sizes) > 1 or -1 in sizes or overlaps or any(is_plain(part) for part in parts):
        raise LostError(axes)
    (size,) = sizes
    complete = sum(length for _, length in pieces) == size
    return (Factor(size, joined(pieces), () if complete else tuple(sorted(axes))),)


def _stack(call: Call) -> list[Spread]:
    spreads = [call.spread_of(tensor) for tensor in call.args[0]]
    at = call.arg(1, "dim", 0) % len(call.shape)
    dims, lost = aligned(spreads, spreads[0].shape)
    partial = spreads[0].partial
    if any(spread.partial != partial for spread in spreads):
        raise LostError(axis for spread in spreads for axis, _ in spread.partial)
    dims.insert(at, (plain(len(spreads)),))
    return [settled(dims, partial, lost)]


def _index(call: Call) -> list[Spread]:
    spread = call.spread(0)
    at = [i for i, index in enumerate(call.args[1]) if index is not None]
    indices = call.args[1][at[0]] if len(at) == 1 else None
    if indices is None or indices.dtype in (torch.bool, torch.uint8):
        require_plain(*spread.dims)
        return [replace(whole(call.shape), partial=spread.partial)]
    require_plain(spread.dims[at[0]])
    chosen = call.spread_of(indices)
    return [settled([*spread.dims[: at[0]], *chosen.dims, *spread.dims[at[0] + 1 :]], spread.partial)]


def _like(call: Call) -> list[Spread]:
    return [replace(call.spread(0), partial=())]


def _fresh(call: Call) -> list[Spread]:
    return [whole(tuple(output.shape)) for output in call.outputs]


def _scatter(call: Call) -> list[Spread]:
    spread = call.spread(0)
    if spread.partial:
        raise LostError(axis for axis, _ in spread.partial)
    return [spread]


#: Operators that write rows into a tensor.
SCATTERS: Final = frozenset({"index_add", "index_add_", "index_put", "index_put_", "index_copy", "index_copy_"}) | {
    "scatter", "scatter_", "scatter_add", "scatter_add_",
}  # fmt: skip

VIEWS: Final[dict[str, Rule]] = {
    **dict.fromkeys(("view", "_unsafe_view", "reshape", "squeeze", "_reshape_alias", "unflatten"), _view),
    **dict.fromkeys(("t", "transpose", "permute", "transpose_"), _permute),
    **dict.fromkeys(("slice", "select", "split", "split_with_sizes", "unbind"), _slices),
    **dict.fromkeys(
        ("zeros_like", "ones_like", "full_like", "empty_like", "rand_like", "randn_like", "bernoulli", "bernoulli_",
         "normal_", "uniform_", "fill_", "zero_"), _like
    ),
    **dict.fromkeys(SCATTERS, _scatter),
    **dict.fromkeys(("new_zeros", "new_ones", "new_full", "new_empty", "new_empty_strided"), _fresh),
    "expand": _expand, "unsqueeze": _unsqueeze, "cat": _cat, "stack": _stack, "index": _index,
}  # fmt: skip
