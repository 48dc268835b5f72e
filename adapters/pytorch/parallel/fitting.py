"""What rules for operators share: the call, operands that are laid side by side, and giving up along some axes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msprobe.adapters.pytorch.parallel.spreads import Dim, Spread, axes_of, global_dim, is_plain, local_size, plain

if TYPE_CHECKING:
    import torch


class LostError(Exception):
    """The operands are cut in a way that says nothing of the result, along some axes."""

    def __init__(self, axes: Iterable[str]) -> None:
        super().__init__()
        self.axes = frozenset(axes)


@dataclass(frozen=True, slots=True)
class Call:
    """One call of an operator: its short name (``sum.dim_IntList``), arguments, and the spreads of tensors."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    spread_of: Callable[[Any], Spread]
    outputs: Sequence[torch.Tensor]

    def spread(self, position: int) -> Spread:
        """Gives the spread of a positional tensor argument."""
        return self.spread_of(self.args[position])

    def arg(self, position: int, name: str, default: Any = None) -> Any:
        """Gives an argument by position or name."""
        return self.args[position] if position < len(self.args) else self.kwargs.get(name, default)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the first output."""
        return tuple(self.outputs[0].shape)


Rule = Callable[[Call], Sequence[Spread]]


def aligned(spreads: Sequence[Spread], shape: Sequence[int]) -> tuple[list[Dim], set[str]]:
    """Gives the dimensions of what operands of these spreads broadcast to, and the axes on which they do not fit."""
    dims: list[Dim] = []
    lost: set[str] = set()
    for i, size in enumerate(shape):
        found: list[Dim] = []
        for spread in spreads:
            j = i - (len(shape) - len(spread.dims))
            if j < 0 or is_plain(spread.dims[j]):
                continue
            if local_size(spread.dims[j]) == size:
                found.append(spread.dims[j])
            else:
                lost |= axes_of(spread.dims[j])
        if all(same_dim(found[0], other) for other in found):
            dims.append(found[0] if found else (plain(size),))
        else:
            lost |= {axis for dim in found for axis in axes_of(dim)}
            dims.append((plain(size),))
    return dims, lost


def same_dim(one: Dim, other: Dim) -> bool:
    return one == other or (axes_of(one) == axes_of(other) and global_dim(one) == global_dim(other))


def settled(dims: Sequence[Dim], partial: Iterable[tuple[str, str]] = (), lost: Iterable[str] = ()) -> Spread:
    """Makes a spread; an axis that would do two things at once is unknown."""
    partial = sorted(set(partial))
    used = Counter(axis for dim in dims for axis in axes_of(dim)) + Counter(axis for axis, _ in partial)
    twice = {axis for axis, count in used.items() if count > 1}
    return Spread(tuple(dims), tuple(partial)).with_unknown(twice.union(lost))


def passed_on(*spreads: Spread, allowed: int = -1) -> tuple[tuple[str, str], ...]:
    """Gives the partial axes that pass through an operator linear in one of its operands."""
    having = [(i, spread.partial) for i, spread in enumerate(spreads) if spread.partial]
    if len(having) > 1 or (having and allowed >= 0 and having[0][0] != allowed):
        raise LostError(axis for _, partial in having for axis, _ in partial)
    return having[0][1] if having else ()


def require_plain(*dims: Dim) -> None:
    """Gives up where an operator works along a dimension that is cut."""
    cut = [axis for dim in dims for axis in axes_of(dim)]
    if cut:
        raise LostError(cut)
