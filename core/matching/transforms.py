"""How tensors of several nodes become one tensor of another node: joined, interleaved, transposed, reshaped.

A rule names the transform; along which dimension it acts on a given tensor follows from the shapes. A dimension that is
given counts for outputs (``concat: -1``: features of a linear layer) or for parameters (``dim: 0``); of the other kind
of tensor the one dimension is taken along which the parts add up to the whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Shape = tuple[int, ...]

CONCAT, INTERLEAVE = "concat", "interleave"


@dataclass(frozen=True, slots=True)
class Transform:
    """What makes one tensor of the parts': ``join``, then ``transpose``, then ``reshape``, each where it is given.

    ``groups`` is a number, or the name of a recorded scalar that holds it. ``transpose`` swaps two dimensions.
    ``reshape`` is a shape, one of it may be -1; an empty one with ``reshapes`` is that of the other side. ``of`` tells
    which tensors are transposed or reshaped: "parameters" (and their gradients), "activations" or "all". With
    ``reorders`` the rows of parameters, and the features of outputs, are put in the order of the other side's rows of
    equal content; ``order`` gives it once it is known.
    """

    join: str = CONCAT
    dim: int = -1
    groups: int | str = 1
    transpose: tuple[int, int] | None = None
    reshape: Shape = ()
    reshapes: bool = False
    of: str = ""
    reorders: bool = False
    order: tuple[int, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Tells whether a single part stays as it is."""
        return self.transpose is None and not self.reshapes and not self.reorders

    def with_groups(self, groups: int) -> Transform:
        """Gives the transform with the number of groups filled in."""
        return replace(self, groups=groups)

    def describe(self) -> str:
        """Words the transform: ``interleave of 2 groups, transposed``."""
        words = ["concat" if self.join == CONCAT else f"interleave of {self.groups} groups"]
        words += ["rows in the order of their content"] if self.reorders else []
        words += ["transposed"] if self.transpose is not None else []
        words += ["reshaped"] if self.reshapes else []
        return ", ".join(words)


@dataclass(frozen=True, slots=True)
class Plan:
    """A transform as it acts on one kind of tensor. ``shared``: the parts hold the same tensor, taken once."""

    shared: bool = False
    axis: int | None = None
    groups: int = 1
    order: tuple[int, ...] = ()
    transpose: tuple[int, int] | None = None
    reshape: Shape | None = None

    def apply(self, parts: Sequence[Array]) -> Array:
        """Makes the whole of its parts."""
        whole = parts[0] if self.shared or self.axis is None else _joined(parts, self.axis, self.groups)
        if self.order:
            whole = np.take(whole, self.order, axis=self.axis)
        if self.transpose is not None:
            whole = np.swapaxes(whole, *self.transpose)
        return whole if self.reshape is None else whole.reshape(self.reshape)

    def shape(self, shapes: Sequence[Shape]) -> Shape:
        """Gives the shape of the whole.

        Raises:
            ValueError: The parts do not fit together.
        """
        whole = shapes[0] if self.shared or self.axis is None else _joined_shape(shapes, self.axis, self.groups)
        if whole is None:
            raise ValueError(f"shapes {_words(shapes)} do not fit together")
        if self.transpose is not None:
            whole = _swapped(whole, self.transpose)
        return whole if self.reshape is None else _reshaped(whole, self.reshape) or whole

    def vectors(self, parts: Sequence[tuple[Array, Array]], shapes: Sequence[Shape]) -> tuple[Array, Array] | None:
        """Makes row and column sums of the whole of those of its parts; None where they do not tell them."""
        if self.reshape is not None or len({len(shape) for shape in shapes}) > 1:
            return None
        rows, columns = parts[0]
        if not self.shared and self.axis == 0:
            rows = _joined([row for row, _ in parts], 0, self.groups)
            columns = np.add.reduce([column for _, column in parts])
        elif not self.shared and self.axis is not None:
            rows = np.add.reduce([row for row, _ in parts])
            inner = [column.reshape(shape[1:]) for (_, column), shape in zip(parts, shapes, strict=True)]
            together = _joined(inner, self.axis - 1, self.groups)
            columns = (np.take(together, self.order, axis=self.axis - 1) if self.order else together).reshape(-1)
        if self.order and self.axis == 0:
            rows = rows[list(self.order)]
        if self.transpose is None:
            return rows, columns
        return (columns, rows) if len(shapes[0]) == 2 else None


def make_plan(
    transform: Transform, shapes: Sequence[Shape], whole: Shape | None, *, lasting: bool, entering: bool
) -> Plan | None:
    """Finds how a transform acts on tensors of these shapes so that the whole has its shape; None: it cannot.

    Args:
        transform: What the rule asks for.
        shapes: The shapes of the parts.
        whole: The shape on the other side; None where it has no such tensor.
        lasting: They are parameters, or gradients or states of some.
        entering: They enter their nodes, or leave them in backward: parts of one whole share them.
    """
    after = _after(transform, lasting=lasting)
    groups = int(transform.groups) if transform.join == INTERLEAVE else 1
    if len(shapes) == 1:
        moved = transform.order and not entering and bool(shapes[0])
        plans = [replace(after, axis=(0 if lasting else len(shapes[0]) - 1) if moved else None)]
    elif (whole is None and entering) or (whole is not None and all(shape == whole for shape in shapes)):
        plans = [replace(after, shared=True), Plan(shared=True)]
    else:
        dimensions = len(shapes[0])
        first = transform.dim % dimensions if dimensions and -dimensions <= transform.dim < dimensions else 0
        axes = [first, *(axis for axis in range(dimensions) if axis != first)]
        plans = [replace(after, axis=axis, groups=groups) for axis in (axes if whole is not None else axes[:1])]
        plans += [Plan(shared=True)] if entering else []
    found = next((fitted for plan in plans if (fitted := _fitted(plan, shapes, whole)) is not None), None)
    return _ordered(found, transform.order, shapes) if found is not None and transform.order else found


def _ordered(plan: Plan, order: tuple[int, ...], shapes: Sequence[Shape]) -> Plan:
    """Puts the rows in order where the plan joins along a dimension of that length."""
    if plan.axis is None or plan.shared or sum(shape[plan.axis] for shape in shapes) != len(order):
        return plan
    return replace(plan, order=order, groups=1)


def _after(transform: Transform, *, lasting: bool) -> Plan:
    """Gives the part of the plan that follows joining."""
    kind = "parameters" if lasting else "activations"
    transposes = transform.transpose is not None and transform.of in (("", kind, "all") if lasting else (kind, "all"))
    reshapes = transform.reshapes and transform.of in ("", kind, "all")
    return Plan(transpose=transform.transpose if transposes else None, reshape=transform.reshape if reshapes else None)


def _fitted(plan: Plan, shapes: Sequence[Shape], whole: Shape | None) -> Plan | None:
    """Gives the plan if it makes the whole's shape, its transpose left out for tensors of too few dimensions."""
    if plan.transpose is not None and max(plan.transpose) >= len(shapes[0]):
        plan = replace(plan, transpose=None)
    if plan.reshape == () and whole is not None:
        plan = replace(plan, reshape=whole)
    try:
        made = plan.shape(shapes)
    except ValueError:
        return None
    if whole is None or made == whole:
        return plan
    # A shape that is meant for tensors of another kind changes nothing here.
    return _fitted(replace(plan, reshape=None), shapes, whole) if plan.reshape is not None else None


def _joined(parts: Sequence[Array], axis: int, groups: int) -> Array:
    if groups == 1:
        return np.concatenate(parts, axis=axis)
    cut = [part.reshape(*part.shape[:axis], groups, -1, *part.shape[axis + 1 :]) for part in parts]
    whole = np.concatenate(cut, axis=axis + 1)
    return whole.reshape(*whole.shape[:axis], -1, *whole.shape[axis + 2 :])


def _joined_shape(shapes: Sequence[Shape], axis: int, groups: int) -> Shape | None:
    first = shapes[0]
    if any(len(shape) != len(first) or axis >= len(shape) for shape in shapes):
        return None
    if any(shape[:axis] != first[:axis] or shape[axis + 1 :] != first[axis + 1 :] for shape in shapes):
        return None
    if any(shape[axis] % groups for shape in shapes):
        return None
    return (*first[:axis], sum(shape[axis] for shape in shapes), *first[axis + 1 :])


def _swapped(shape: Shape, axes: tuple[int, int]) -> Shape:
    found = list(shape)
    found[axes[0]], found[axes[1]] = found[axes[1]], found[axes[0]]
    return tuple(found)


def _reshaped(shape: Shape, wanted: Shape) -> Shape | None:
    """Fills in a -1; None where the numbers of elements differ."""
    count, known = math.prod(shape), math.prod(size for size in wanted if size != -1)
    if -1 in wanted and known and count % known == 0:
        return tuple(count // known if size == -1 else size for size in wanted)
    if math.prod(wanted) != count:
        raise ValueError(f"{count} elements have no shape {_words([wanted])}")
    return wanted


def _words(shapes: Sequence[Shape]) -> str:
    return ", ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)
