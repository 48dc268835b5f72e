"""Ranks whose layouts suppose that all have as many samples, and that have not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from msprobe.core.merging.axes import Member, data_axes
from msprobe.core.placement import Layout, Placement


def with_true_batches(members: Sequence[Member]) -> Sequence[Member]:
    """Takes supposed places in the batch out of layouts that contradict each other, so that pieces are joined by size.

    A rank alone cannot know how many samples the others have; its adapter supposes as many as its own. Where the whole
    shapes that members name differ along the batch only, each keeps its piece, and the pieces follow each other.
    Sketches and checksums that were keyed by the supposed index then cannot be added.
    """
    layouts = [member.layout for member in members]
    if any(layout is None or layout.spans is None for layout in layouts):
        return members
    known = [layout for layout in layouts if layout is not None]
    if len({layout.global_shape for layout in known}) == 1 or len({len(layout.global_shape) for layout in known}) > 1:
        return members
    data = data_axes(members[0].mesh)
    cut = {p.dim for layout in known for p in layout.placements if p.axis in data and p.kind == "shard"}
    others = {tuple(size for d, size in enumerate(layout.global_shape) if d not in cut) for layout in known}
    if len(cut) != 1 or len(others) != 1:
        return members
    (dim,) = cut
    if any(len((layout.spans or ())[dim]) > 1 for layout in known):
        return members  # samples that are dealt in turn have no place without the others' number
    return [_joined(member, dim, data) for member in members]


def _joined(member: Member, dim: int, data: Sequence[str]) -> Member:
    layout = member.layout
    assert layout is not None
    spans = list(layout.spans or ())
    size = sum(length for _, length in spans[dim])
    spans[dim] = ((0, size),) if size else ()
    shape = tuple(size if d == dim else n for d, n in enumerate(layout.global_shape))
    placements = tuple(p for p in layout.placements if p.axis not in data)
    made = Layout(shape, tuple(spans), None, placements, layout.scale, layout.known_by)
    rules = tuple(Placement(axis, "shard", dim) for axis in data if layout.placement(axis) is not None)
    return replace(member, layout=made, rules=(*rules, *member.rules))
