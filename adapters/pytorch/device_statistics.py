"""The statistics of ``core.statistics`` with torch operators, on any device and without looking at a value.

Everything is branch-free: what NumPy decides by looking (is anything non-finite, must it be scaled) is here a ``where``
or done always, because looking would wait for the device. Sums are in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import torch
from torch import Tensor

from msprobe.core.kernels.arrays import COUNTS, FLOATS

#: Elements worked on at a time; bounds the float64 copy to 128 MiB.
BLOCK: Final = 2**24
_INF: Final = float("inf")


def measure(values: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Gives the floats and counts of ``slot_tables`` as float64 and int64 scalars on the tensor's device."""
    if not values.numel():
        return _nothing(values.device)
    pieces = list(real_blocks(values))
    counts, finite, low, high = _counts_and_range(pieces)
    scale = torch.maximum(-low, high)
    scale = torch.where((scale > 0) & (scale < _INF), scale, 1.0)
    total, absolute, squares = _sums(pieces, scale)
    some = finite.clamp(min=1)
    mean = total / some
    m2 = _centred_squares(pieces, scale, mean)
    nothing = finite == 0
    floats = [low, high, mean * scale, absolute / some * scale, m2 * scale * scale, squares.sqrt() * scale]
    return [f.masked_fill(nothing, float("nan")) for f in floats], counts


def _nothing(device: torch.device) -> tuple[list[Tensor], list[Tensor]]:
    floats = torch.full((len(FLOATS),), float("nan"), dtype=torch.float64, device=device)
    return list(floats), list(torch.zeros(len(COUNTS), dtype=torch.int64, device=device))


def _counts_and_range(pieces: list[Tensor]) -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
    counts, finites, lows, highs = [], [], [], []
    for piece in pieces:
        x = _doubles(piece)
        finite = torch.isfinite(x)
        counts.append(torch.stack([torch.isnan(x).sum(), (x == _INF).sum(), (x == -_INF).sum(), (x == 0).sum()]))
        finites.append(finite.sum())
        lows.append(torch.where(finite, x, _INF).amin())
        highs.append(torch.where(finite, x, -_INF).amax())
    return list(_add(counts).unbind()), _add(finites), torch.stack(lows).amin(), torch.stack(highs).amax()


def _sums(pieces: list[Tensor], scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    sums = []
    for piece in pieces:
        x = finite_doubles(piece).div_(scale)
        magnitude = x.abs()
        sums.append(torch.stack([x.sum(), magnitude.sum(), magnitude.square_().sum()]))
    total, absolute, squares = _add(sums).unbind()
    return total, absolute, squares


def _centred_squares(pieces: list[Tensor], scale: Tensor, mean: Tensor) -> Tensor:
    parts = []
    for piece in pieces:
        x = _doubles(piece)
        deviations = torch.where(torch.isfinite(x), x / scale - mean, 0.0)
        parts.append(deviations.square_().sum())
    return _add(parts)


def real_blocks(values: Tensor, block: int = BLOCK) -> Iterator[Tensor]:
    """Cuts a tensor into flat contiguous blocks of real elements in row-major order, copying one piece at most."""
    if values.is_complex():
        values = torch.view_as_real(values.resolve_conj())
    if values.is_neg():
        values = values.resolve_neg()
    if values.numel():
        yield from _flat_blocks(values, block)


def _flat_blocks(values: Tensor, block: int) -> Iterator[Tensor]:
    if values.numel() <= block:
        yield values.reshape(-1)
    elif values.is_contiguous():
        yield from torch.split(values.view(-1), block)
    elif values[0].numel() >= block:
        for part in values.unbind():
            yield from _flat_blocks(part, block)
    else:
        for part in torch.split(values, max(1, block // values[0].numel())):
            yield part.reshape(-1)


def finite_doubles(piece: Tensor) -> Tensor:
    """Gives a fresh float64 copy in which non-finite elements are zero."""
    x = piece.to(torch.float64, copy=True)
    return torch.where(torch.isfinite(x), x, 0.0) if piece.is_floating_point() else x


def _doubles(piece: Tensor) -> Tensor:
    return piece.to(torch.float64)


def _add(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)
