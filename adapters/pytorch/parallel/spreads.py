"""How a local tensor is spread: each dimension as a product of factors, of which the rank holds some indices.

A plain local tensor does not say that it is a part. Operators carry this along: a view splits and joins dimensions, so
a dimension is a row-major product of *factors*, and a factor that is cut keeps its pieces through any reshape.

>>> spread = whole((2, 6, 8)).cut("tp", 2, ((8, 8),), 16)     # the second half of 16 features
>>> heads = permuted(reshaped(spread, (2, 6, 2, 4)), (0, 2, 1, 3))
>>> [global_dim(dim) for dim in heads.dims]
[(2, ((0, 2),)), (4, ((2, 2),)), (6, ((0, 6),)), (4, ((0, 4),))]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from msprobe.core.placement import Intervals, Layout, Placement

#: A dimension that is in more pieces than this is told as unknown.
MAX_PIECES: Final = 4096


@dataclass(frozen=True, slots=True)
class Factor:
    """A dimension, or an outer or inner part of one: its size in the whole tensor, and the pieces that are held.

    ``axes`` are the axes of the mesh that cut it. Without any, ``spans`` may still be another order than the whole's.
    """

    size: int
    spans: Intervals
    axes: tuple[str, ...] = ()

    @property
    def local(self) -> int:
        """How many indices are held."""
        return sum(length for _, length in self.spans)

    @property
    def is_plain(self) -> bool:
        """Whether all indices are held, in order, and no axis cuts it."""
        return not self.axes and self.spans == _full(self.size)


Dim = tuple[Factor, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """The dimensions of a local tensor, and the axes along which its values are partial or nothing is known."""

    dims: tuple[Dim, ...]
    partial: tuple[tuple[str, str], ...] = ()
    unknown: frozenset[str] = frozenset()
    known_by: str = "propagated"

    @property
    def shape(self) -> tuple[int, ...]:
        """The local shape."""
        return tuple(math.prod(factor.local for factor in dim) for dim in self.dims)

    @property
    def axes(self) -> frozenset[str]:
        """The axes that do anything to the tensor."""
        cut = (axis for dim in self.dims for factor in dim for axis in factor.axes)
        return frozenset((*cut, *(axis for axis, _ in self.partial), *self.unknown))

    @property
    def is_plain(self) -> bool:
        """Whether it is the whole tensor."""
        return not self.partial and not self.unknown and all(is_plain(dim) for dim in self.dims)

    def cut(self, axis: str, dim: int, spans: Intervals, size: int) -> Spread:
        """Says that a dimension is in truth of ``size`` entries, of which ``spans`` are held."""
        dims = list(self.dims)
        dims[dim] = (Factor(size, spans, (axis,)),)
        return replace(self, dims=tuple(dims))

    def with_unknown(self, axes: Iterable[str]) -> Spread:
        """Says that nothing is known of some axes: their pieces count as the whole."""
        gone = frozenset(axes)
        if not gone:
            return self
        dims = tuple(tuple(plain(f.local) if gone.intersection(f.axes) else f for f in dim) for dim in self.dims)
        partial = tuple(entry for entry in self.partial if entry[0] not in gone)
        return replace(self, dims=dims, partial=partial, unknown=self.unknown | gone)


def plain(size: int) -> Factor:
    """Makes a factor that is held entirely."""
    return Factor(size, _full(size))


def whole(shape: Sequence[int]) -> Spread:
    """Makes the spread of a tensor that is no part."""
    return Spread(tuple((plain(size),) for size in shape))


def is_plain(dim: Dim) -> bool:
    """Tells whether a dimension is held entirely, in order."""
    return all(factor.is_plain for factor in dim)


def axes_of(dim: Dim) -> frozenset[str]:
    """Gives the axes that cut a dimension."""
    return frozenset(axis for factor in dim for axis in factor.axes)


def local_size(dim: Dim) -> int:
    """Gives the local size of a dimension."""
    return math.prod(factor.local for factor in dim)


def of_layout(layout: Layout) -> Spread | None:
    """Gives the spread of a layout with spans; None for a flat slice."""
    if layout.flat is not None or layout.spans is None:
        return None
    cut: dict[int, tuple[str, ...]] = {}
    for placement in layout.placements:
        if placement.kind == "shard":
            cut[placement.dim] = (*cut.get(placement.dim, ()), placement.axis)
    dims = tuple(
        (Factor(size, spans, cut.get(i, ())),)
        for i, (size, spans) in enumerate(zip(layout.global_shape, layout.spans, strict=True))
    )
    partial = tuple(sorted((p.axis, p.op) for p in layout.placements if p.kind == "partial"))
    unknown = frozenset(p.axis for p in layout.placements if p.kind == "unknown")
    return Spread(dims, partial, unknown, layout.known_by)


def to_layout(spread: Spread, axes: Sequence[str], *, explicit: bool = False) -> Layout | None:
    """Gives the layout of a spread on a mesh with these axes; None for a whole one, unless it must be ``explicit``."""
    if spread.is_plain and not explicit:
        return None
    sizes, spans = [], []
    for dim in spread.dims:
        found = global_dim(dim)
        if found is None:
            return to_layout(spread.with_unknown(axes_of(dim)), axes, explicit=explicit)
        sizes.append(found[0])
        spans.append(found[1])
    partial = dict(spread.partial)
    cut = {axis: i for i, dim in enumerate(spread.dims) for axis in axes_of(dim)}
    placements = []
    for axis in (*axes, *sorted(spread.axes.difference(axes))):
        if axis in spread.unknown:
            placements.append(Placement(axis, "unknown"))
        elif axis in cut:
            placements.append(Placement(axis, "shard", cut[axis]))
        elif axis in partial:
            placements.append(Placement(axis, "partial", op=partial[axis]))
        else:
            placements.append(Placement(axis, "replicate"))
    return Layout(tuple(sizes), tuple(spans), placements=tuple(placements), known_by=spread.known_by)


def global_dim(dim: Dim) -> tuple[int, Intervals] | None:
    """Gives the size of a dimension in the whole tensor and the pieces held; None when they are too many."""
    size = 1
    spans: Intervals = ((0, 1),)
    for factor in reversed(dim):
        if spans == _full(size):
            spans = tuple((start * size, length * size) for start, length in factor.spans)
        else:
            if factor.local * len(spans) > MAX_PIECES:
                return None
            indices = (i for start, length in factor.spans for i in range(start, start + length))
            spans = joined((i * size + start, length) for i in indices for start, length in spans)
        size *= factor.size
    return size, spans


def joined(pieces: Iterable[tuple[int, int]]) -> Intervals:
    """Joins pieces that follow each other."""
    out: list[tuple[int, int]] = []
    for start, length in pieces:
        if out and sum(out[-1]) == start:
            out[-1] = (out[-1][0], out[-1][1] + length)
        elif length:
            out.append((start, length))
    return tuple(out)


def settled_along(spread: Spread, axis: str) -> Spread:
    """Gives the spread of a tensor that is known to be whole along an axis."""
    lost = spread.with_unknown((axis,))
    return replace(lost, unknown=lost.unknown - {axis})


def scaled(spread: Spread, shape: Sequence[int]) -> Spread:
    """Gives the spread of a tensor of another local shape that is cut in the same way, as with longer samples.

    Where a dimension does not grow in proportion, its axes are unknown.
    """
    if len(shape) != len(spread.dims):
        return whole(shape).with_unknown(spread.axes)
    dims: list[Dim] = []
    lost: set[str] = set()
    for dim, size in zip(spread.dims, shape, strict=True):
        local = local_size(dim)
        grown = dim if local == size else _grown(dim, size, local)
        lost |= axes_of(dim) if grown is None else set()
        dims.append(grown or (plain(size),))
    return replace(spread, dims=tuple(dims)).with_unknown(lost)


def _grown(dim: Dim, size: int, local: int) -> Dim | None:
    if is_plain(dim):
        return (plain(size),)
    found = global_dim(dim)
    if found is None or not local:
        return None
    numbers = (found[0], *(number for piece in found[1] for number in piece))
    if any(number * size % local for number in numbers):
        return None
    spans = tuple((start * size // local, length * size // local) for start, length in found[1])
    return (Factor(found[0] * size // local, spans, tuple(sorted(axes_of(dim)))),)


def reshaped(spread: Spread, shape: Sequence[int]) -> Spread:
    """Gives the spread after a view or reshape to a local shape; axes whose cut does not survive become unknown."""
    factors = [factor for dim in spread.dims for factor in dim if factor.local != 1 or not factor.is_plain]
    dims: list[Dim] = []
    lost: set[str] = set()
    for target in shape:
        dim: list[Factor] = []
        wanted = target
        while factors and (wanted > 1 or (factors[0].local == 1 and wanted == 1 and not dim)):
            factor = factors.pop(0)
            if factor.local and wanted % factor.local == 0:
                dim.append(factor)
                wanted //= factor.local
            elif factor.local and factor.local % wanted == 0:
                outer, inner, axes = _split(factor, wanted)
                lost |= axes
                dim.append(outer)
                factors.insert(0, inner)
                wanted = 1
            else:
                return whole(shape).with_unknown(spread.axes)
        dims.append(_tidy(dim, target))
    made = replace(spread, dims=tuple(dims))
    if factors or made.shape != tuple(shape):
        return whole(shape).with_unknown(spread.axes)
    return made.with_unknown(lost)


def permuted(spread: Spread, order: Sequence[int]) -> Spread:
    """Reorders dimensions."""
    return replace(spread, dims=tuple(spread.dims[i] for i in order))


def part_of_dim(dim: Dim, start: int, stop: int) -> Dim | None:
    """Gives the dimension after slicing local entries ``start`` to ``stop``; None when it is not known.

    A slice of a whole dimension is whole itself. Of a cut one it is known where the slice is the rank's part of a block
    that begins and ends at the same share of the whole: one of several matrices that lie in one.
    """
    local = local_size(dim)
    if (start, stop) == (0, local):
        return dim
    if is_plain(dim) or not axes_of(dim):
        return (plain(stop - start),)
    found = global_dim(dim)
    if found is None or (start * found[0]) % local or (stop * found[0]) % local:
        return None
    size, spans = found
    low, high = start * size // local, stop * size // local
    held = _cut(spans, start, stop - start)
    blocks = ((_cut(spans, 0, start), 0, low), (held, low, high), (_cut(spans, stop, local - stop), high, size))
    if any(begin < least or begin + length > most for pieces, least, most in blocks for begin, length in pieces):
        return None
    axes = tuple(sorted(axes_of(dim)))
    return (Factor(high - low, tuple((begin - low, length) for begin, length in held), axes),)


def _split(factor: Factor, outer: int) -> tuple[Factor, Factor, set[str]]:
    """Splits a factor into an outer one that holds ``outer`` indices and an inner one."""
    inner = factor.local // outer
    if factor.size % inner == 0 and all(s % inner == 0 and n % inner == 0 for s, n in factor.spans):
        spans = tuple((start // inner, length // inner) for start, length in factor.spans)
        return Factor(factor.size // inner, spans, factor.axes), plain(inner), set()
    return plain(outer), plain(inner), set(factor.axes)


def _tidy(factors: Sequence[Factor], size: int) -> Dim:
    """Joins neighbours that are held entirely."""
    out: list[Factor] = []
    for factor in factors:
        if out and out[-1].is_plain and factor.is_plain:
            out[-1] = plain(out[-1].size * factor.size)
        else:
            out.append(factor)
    return tuple(out) or (plain(size),)


def _cut(spans: Intervals, start: int, length: int) -> Intervals:
    taken, position = [], 0
    for begin, size in spans:
        first, last = max(start, position), min(start + length, position + size)
        if first < last:
            taken.append((begin + first - position, last - first))
        position += size
    return tuple(taken)


def _full(size: int) -> Intervals:
    return ((0, size),) if size else ()
