"""Two linear layers in NumPy, computed as a whole and cut over ranks; the cuts follow from the layouts alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from msprobe.core.placement import Layout
from msprobe.core.sites import Direction, Role

from .cutting import Seen

FORWARD, BACKWARD, REDUCE, UPDATE = Direction.FORWARD, Direction.BACKWARD, Direction.REDUCE, Direction.UPDATE
BATCH, SEQUENCE, WIDTH, HIDDEN = 4, 4, 8, 6


@dataclass(frozen=True)
class Fault:
    """What goes wrong on the ranks with these coordinates, at one site."""

    node: str
    role: Role
    change: Any
    where: dict[str, int]
    direction: Direction = FORWARD

    def hits(self, seen: Seen, place: dict[str, int]) -> bool:
        site = (seen.node, seen.role, seen.direction) == (self.node, self.role, self.direction)
        return site and all(place.get(axis) == value for axis, value in self.where.items())


def weights() -> dict[str, np.ndarray]:
    draw = np.random.default_rng(3)
    first, second = draw.standard_normal((WIDTH, HIDDEN)), draw.standard_normal((HIDDEN, WIDTH))
    return {"a": first.astype(np.float32), "b": second.astype(np.float32)}


def whole(changed: dict[str, np.ndarray] | None = None, *, batch: int = BATCH) -> Iterator[Seen]:
    """All that one rank sees of one step; ``changed`` replaces weights."""
    w = {**weights(), **(changed or {})}
    x = np.random.default_rng(4).standard_normal((batch, SEQUENCE, WIDTH)).astype(np.float32)
    h = x @ w["a"]
    y = h @ w["b"]
    dy = (y / y.size).astype(np.float32)
    dh = dy @ w["b"].T
    flat = lambda t: t.reshape(-1, t.shape[-1])  # noqa: E731
    gradients = {"a": flat(x).T @ flat(dh), "b": flat(h).T @ flat(dy)}
    yield Seen("", x, role=Role.INPUT, class_name="Net")
    for node, entering, leaving in (("a", x, h), ("b", h, y)):
        yield Seen(node, w[node], role=Role.PARAMETER, argument="weight")
        yield Seen(node, entering, role=Role.INPUT)
        yield Seen(node, leaving)
    yield Seen("", y, class_name="Net")
    for node, arriving, leaving in (("b", dy, dh), ("a", dh, dh @ w["a"].T)):
        yield Seen(node, arriving, BACKWARD, Role.INPUT)
        yield Seen(node, gradients[node], BACKWARD, Role.GRADIENT, "weight")
        yield Seen(node, leaving, BACKWARD, Role.OUTPUT)
    for node in ("a", "b"):
        yield Seen(node, gradients[node], UPDATE, Role.GRADIENT, "weight")


def site(node: str, role: Role, direction: Direction = FORWARD, argument: str = "0") -> tuple[Any, ...]:
    return node, direction, role, argument


def _edges() -> Iterator[tuple[Any, Any]]:
    into = {"a": site("", Role.INPUT), "b": site("a", Role.OUTPUT)}
    arriving = {"b": site("", Role.OUTPUT), "a": site("b", Role.OUTPUT, BACKWARD)}
    for node in ("a", "b"):
        weight = site(node, Role.PARAMETER, argument="weight")
        entered, left = site(node, Role.INPUT), site(node, Role.OUTPUT)
        yield into[node], entered
        yield entered, left
        yield weight, left
        back = site(node, Role.INPUT, BACKWARD)
        yield arriving[node], back
        yield back, site(node, Role.OUTPUT, BACKWARD)
        yield weight, site(node, Role.OUTPUT, BACKWARD)
        yield back, site(node, Role.GRADIENT, BACKWARD, "weight")
        yield entered, site(node, Role.GRADIENT, BACKWARD, "weight")
    yield site("b", Role.OUTPUT), site("", Role.OUTPUT)


EDGES = tuple(_edges())


def layout_of(seen: Seen, sizes: dict[str, int], place: dict[str, int]) -> Layout:
    """How a rank holds a tensor: weights over tp (columns of a, rows of b) and fsdp, batch over dp and fsdp."""
    shape = seen.values.shape
    layout = Layout.whole(shape)
    lasting = seen.role in (Role.PARAMETER, Role.GRADIENT)
    if not lasting:
        for axis in [axis for axis in sizes if axis in ("dp", "fsdp")]:
            layout = layout.shard(axis, 0, coordinate=place[axis], parts=sizes[axis])
    if "cp" in sizes and not lasting:
        layout = layout.zigzag("cp", 1, coordinate=place["cp"], size=sizes["cp"])
    if "tp" in sizes:
        dim = (1 if seen.node == "a" else 0) if lasting else (2 if shape[-1] == HIDDEN else None)
        layout = (
            layout.replicate("tp")
            if dim is None
            else layout.shard("tp", dim, coordinate=place["tp"], parts=sizes["tp"])
        )
    if lasting:
        for axis in [axis for axis in sizes if axis in ("dp", "fsdp", "cp")]:
            if seen.role is Role.GRADIENT and seen.direction is BACKWARD:
                layout = layout.partial(axis, "sum")
            elif axis == "fsdp":
                layout = layout.shard(axis, 0, coordinate=place[axis], parts=sizes[axis])
            else:
                layout = layout.replicate(axis)
    return layout.keyed_globally()


def cut(sizes: dict[str, int], place: dict[str, int], fault: Fault | None = None, **settings: Any) -> Iterator[Seen]:
    """What the rank at a place of the mesh sees."""
    ranks = int(np.prod([sizes.get(axis, 1) for axis in ("dp", "fsdp", "cp")]))
    for seen in whole(**settings):
        layout = layout_of(seen, sizes, place)
        if seen.role is Role.GRADIENT and seen.direction is BACKWARD:
            number = 0
            for axis in ("dp", "fsdp", "cp"):
                number = number * sizes.get(axis, 1) + place.get(axis, 0)
            seen = _term(seen, number, ranks)
        seen = seen.cut(layout)
        if fault is not None and fault.hits(seen, place):
            seen = seen.with_values(fault.change(seen.values).astype(np.float32))
        yield seen


def _term(seen: Seen, number: int, count: int) -> Seen:
    """One of several different terms whose sum is the gradient."""
    if count == 1:
        return seen
    shares = np.arange(1, count + 1, dtype=np.float32)
    return replace(seen, values=seen.values * (shares / shares.sum())[number])
