"""What operators do to spreads: where the parts of their operands go, and where values become partial.

A rule gets the call and gives the spread of each output. Where no rule is known, or operands are cut in ways that do
not fit together, nothing is known of the axes concerned: never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import torch

from msprobe.adapters.pytorch.parallel.fitting import Call, LostError, Rule, aligned, settled
from msprobe.adapters.pytorch.parallel.spreads import Spread, axes_of, whole
from msprobe.adapters.pytorch.parallel.summing import SUMS
from msprobe.adapters.pytorch.parallel.viewing import SCATTERS, VIEWS

RULES: Final[dict[str, Rule]] = {**VIEWS, **SUMS}
#: Pointwise operators that are linear in all their tensors together.
_SUMS: Final = frozenset({"add", "sub", "rsub", "add_", "sub_"})
#: Linear in each operand by itself.
_PRODUCTS: Final = frozenset({"mul", "mul_"})
#: Linear in the first operand, whatever the others are.
_LINEAR: Final = frozenset(
    {"div", "div_", "neg", "neg_", "clone", "_to_copy", "detach", "alias", "contiguous", "lift_fresh", "to"}
    | {"masked_fill", "masked_fill_", "tril", "triu", "native_dropout"}
)


def spreads_of_outputs(call: Call, operands: Sequence[Spread], *, pointwise: bool) -> list[Spread]:
    """Gives the spread of each output of an operator, by its rule."""
    short = call.name.partition(".")[0]
    rule = RULES.get(call.name) or RULES.get(short)
    affected = frozenset(axis for operand in operands for axis in operand.axes)
    try:
        if rule is not None:
            found = list(rule(call))
        elif pointwise or short in _LINEAR:
            found = [_pointwise(short, call, operands)] * len(call.outputs)
        else:
            raise LostError(affected)
    except LostError as lost:
        return [_all_but(operands, output, lost.axes or affected) for output in call.outputs]
    unknown = frozenset(axis for operand in operands for axis in operand.unknown)
    if short in SCATTERS:  # rows of this rank's own tensor are written, wherever the values have been in between
        unknown = unknown.difference(*map(axes_of, found[0].dims))
    return [
        spread.with_unknown(unknown) if spread.shape == tuple(output.shape) else _lost(output, affected)
        for spread, output in zip(_padded(found, call.outputs, affected), call.outputs, strict=True)
    ]


def _padded(found: list[Spread], outputs: Sequence[torch.Tensor], axes: frozenset[str]) -> list[Spread]:
    return found[: len(outputs)] + [_lost(output, axes) for output in outputs[len(found) :]]


def _lost(output: torch.Tensor, axes: Iterable[str]) -> Spread:
    return whole(tuple(output.shape)).with_unknown(axes)


def _all_but(operands: Sequence[Spread], output: torch.Tensor, axes: frozenset[str]) -> Spread:
    return _lost(output, axes.union(*(operand.axes for operand in operands)))


def _pointwise(short: str, call: Call, operands: Sequence[Spread]) -> Spread:
    if short == "copy_":
        operands = operands[1:]
    dims, lost = aligned(operands, call.shape)
    partial: tuple[tuple[str, str], ...] = ()
    having = [operand.partial for operand in operands if operand.partial]
    if having:
        partial = having[0]
        first = bool(operands[0].partial)
        linear = (
            (short in _SUMS and all(operand.partial == partial for operand in operands) and _has_no_constant(call))
            or (short in _PRODUCTS and len(having) == 1)
            or ((short in _LINEAR or short.endswith("_backward")) and len(having) == 1 and first)
            or (short == "where" and not operands[0].partial and all(o.partial == partial for o in operands[1:]))
            or short == "copy_"  # of which only the source counts
        )
        if not linear:
            lost |= {axis for entries in having for axis, _ in entries}
            partial = ()
    return settled(dims, partial, lost)


def _has_no_constant(call: Call) -> bool:
    return all(isinstance(value, torch.Tensor) for value in call.args[:2])
