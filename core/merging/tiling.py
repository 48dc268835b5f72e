"""Whether parts of a tensor make the whole: every element once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from msprobe.core.placement import Intervals, Layout


def fault_of_tiling(parts: Sequence[Layout], shape: tuple[int, ...]) -> str:
    """Says in words why parts of a tensor of ``shape`` do not make the whole; "" when they do."""
    others = [part for part in parts if part.global_shape != shape]
    if others:
        return f"ranks name different whole shapes: {_text(shape)} and {_text(others[0].global_shape)}"
    held, size = sum(math.prod(part.shape) for part in parts), math.prod(shape)
    if held < size:
        return f"{size - held:,} of {size:,} elements were recorded on no rank"
    if held > size or _overlap(parts):
        return "several ranks hold the same elements, in parts that are not the same"
    return ""


def _overlap(parts: Sequence[Layout]) -> bool:
    parts = [part for part in parts if math.prod(part.shape)]
    if len(parts) < 2:
        return False
    if all(part.flat is None and part.spans is not None for part in parts):
        return any(_crosses(a.spans or (), b.spans or ()) for i, a in enumerate(parts) for b in parts[i + 1 :])
    runs = [(starts, length) for starts, length in (part.runs() for part in parts)]
    starts = np.concatenate([found for found, _ in runs])
    lengths = np.concatenate([np.full(len(found), length) for found, length in runs])
    order = np.argsort(starts)
    ends = starts[order] + lengths[order]
    return bool((ends[:-1] > starts[order][1:]).any())


def _crosses(a: Sequence[Intervals], b: Sequence[Intervals]) -> bool:
    """Tells whether two blocks have an element in common: pieces in common along every dimension."""
    return all(
        any(max(s, t) < min(s + m, t + n) for s, m in pieces_a for t, n in pieces_b)
        for pieces_a, pieces_b in zip(a, b, strict=True)
    )


def _text(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape)) or "scalar"
