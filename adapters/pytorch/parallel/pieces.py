"""The parts that several ranks hold, one after the other in one tensor: what collectives gather and scatter."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from msprobe.adapters.pytorch.parallel.spreads import Dim, Factor, Spread, axes_of, global_dim, joined

if TYPE_CHECKING:
    from msprobe.adapters.pytorch.parallel.fitting import Call

_SAME: Final = frozenset({"view", "_unsafe_view", "detach", "alias", "clone", "_to_copy"})
_SPLITS: Final = frozenset({"split", "split_with_sizes", "chunk", "unbind"})


@dataclass(frozen=True)
class Pieces:
    """The spreads of parts that lie one after the other along dimension 0 of a tensor."""

    parts: tuple[Spread, ...]

    @property
    def axes(self) -> frozenset[str]:
        """The axes that cut the parts."""
        return frozenset(axis for part in self.parts for axis in part.axes)

    def taken_apart(self, call: Call) -> Sequence[Spread | Pieces | None] | None:
        """Gives the outputs of an operator that takes the parts apart or leaves them as they are; None of others."""
        name = call.name.partition(".")[0]
        if name in _SPLITS and len(call.outputs) == len(self.parts):
            fit = [part.shape == tuple(out.shape) for part, out in zip(self.parts, call.outputs, strict=True)]
            return self.parts if all(fit) else None
        if name in _SAME and call.shape == tuple(call.args[0].shape):
            return [self]
        if name == "slice" and call.arg(1, "dim", 0) == 0:
            begin, position = call.arg(2, "start") or 0, 0
            for part in self.parts:
                if position == begin and part.shape == call.shape:
                    return [part]
                position += part.shape[0]
        return None

    def joined(self) -> Spread | None:
        """Gives the spread of the tensor as one, where the parts differ along dimension 0 only and make it whole."""
        first = self.parts[0]
        if not first.dims or any(replace(part, dims=part.dims[1:]) != _inside(first) for part in self.parts):
            return None
        found = [global_dim(part.dims[0]) for part in self.parts]
        spans = joined(piece for entry in found if entry is not None for piece in entry[1])
        sizes = {entry[0] if entry is not None else -1 for entry in found}
        if sizes != {sum(length for _, length in spans)}:
            return None
        return replace(first, dims=((Factor(sizes.pop(), spans),), *first.dims[1:]))


def _inside(spread: Spread) -> Spread:
    return replace(spread, dims=spread.dims[1:])


def at_coordinate(spread: Spread, axis: str, own: int, other: int, size: int) -> Spread | None:
    """Gives a spread as the rank at another coordinate of an axis has it, where the cut is regular; else None."""
    dims: list[Dim] = []
    for dim in spread.dims:
        moved = [_moved(factor, own, other, size) if axis in factor.axes else factor for factor in dim]
        if any(factor is None for factor in moved):
            return None
        dims.append(tuple(factor for factor in moved if factor is not None))
    return replace(spread, dims=tuple(dims))


def _moved(factor: Factor, own: int, other: int, size: int) -> Factor | None:
    """Moves a cut to another coordinate: of contiguous equal parts, and of the first and last of 2n."""
    chunk, rest = divmod(factor.size, size)
    if not rest and factor.spans == ((own * chunk, chunk),):
        return replace(factor, spans=((other * chunk, chunk),))
    half, rest = divmod(factor.size, 2 * size)
    if not rest and factor.spans == zigzag(own, size, half):
        return replace(factor, spans=zigzag(other, size, half))
    return None


def zigzag(coordinate: int, size: int, chunk: int) -> tuple[tuple[int, int], ...]:
    """Gives parts ``coordinate`` and ``2 size - 1 - coordinate`` of ``2 size`` parts of ``chunk`` entries."""
    return joined((part * chunk, chunk) for part in (coordinate, 2 * size - 1 - coordinate))


def completed(spread: Spread, axes: Iterable[str]) -> Spread:
    """Gives the spread after values were combined over axes: nothing is partial or unknown along them.

    A dimension that such an axis cuts cannot have been meant: there the axis is unknown.
    """
    done = frozenset(axes)
    cut = {axis for dim in spread.dims for axis in axes_of(dim)} & done
    partial = tuple(entry for entry in spread.partial if entry[0] not in done)
    return replace(spread, partial=partial, unknown=spread.unknown - done, known_by="propagated").with_unknown(cut)


def named(spread: Spread, axis: str) -> Spread:
    """Says that an axis cuts what is held in part."""
    dims = tuple(
        tuple(f if f.is_plain or axis in f.axes else replace(f, axes=(*f.axes, axis)) for f in dim)
        for dim in spread.dims
    )
    return replace(spread, dims=dims)
