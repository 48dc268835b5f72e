"""How the tensors of several ranks become one: decided once for all records that look alike.

A plan looks at the members of one group (ranks, forms, layouts) and at nothing that was measured. Its members fall
into *cells* (pieces that follow each other along axes such as the batch), a cell into *parts* (tiles of the layout's
whole), a part into *terms* (partial values along an axis), and equal terms are *replicas* of the first of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from msprobe.core.merging.axes import Member, Nature, Placed, data_axes, place
from msprobe.core.merging.batches import with_true_batches
from msprobe.core.merging.tiling import fault_of_tiling
from msprobe.core.placement import Layout

#: How the kept tensors of a group make the whole.
ALONE, JOIN, SUM, MEAN = "alone", "join", "sum", "mean"


@dataclass(frozen=True, slots=True)
class Kept:
    """One member that is needed for the whole: where its cell stands, and which part of the cell it holds."""

    member: int
    cell: tuple[int, ...]
    part: Layout


@dataclass(frozen=True, slots=True)
class Plan:
    """How the members of a group make a whole of ``shape``, or the ``reason`` why that is not known.

    ``kept`` members make it, ``replicas`` (member, the kept one that it must equal, axes) are checked. ``how`` says
    what is done with the kept: ``alone`` (it is one), ``join``, or ``sum`` or ``mean`` over partial terms. ``joined``
    are the axes of the cells' places with their dimensions. ``adds`` tells whether sketches and positional checksums
    of the kept add to that of the whole, ``ordered`` whether the place of each element in it is known, and ``undone``
    gives for each kept member the factor that takes its scale out.
    """

    shape: tuple[int, ...]
    dtype: str
    kept: tuple[Kept, ...] = ()
    replicas: tuple[tuple[int, int, str], ...] = ()
    how: str = ALONE
    joined: tuple[tuple[str, int], ...] = ()
    adds: bool = True
    ordered: bool = True
    undone: tuple[float, ...] = ()
    #: How many partial terms each part is the sum or mean of.
    terms: int = 1
    reason: str = ""
    #: Axes along which a partial value waits for an operation that was not recorded.
    unreduced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """What a plan must know besides its members.

    ``present`` are the ranks that have the node at all, ``recorded`` all ranks of the run, ``whole`` the shape of the
    other side's whole tensor, where one is compared with.
    """

    nature: Nature
    present: frozenset[int]
    recorded: frozenset[int]
    meshes: Mapping[int, Mapping[str, tuple[int, int]]]
    whole: tuple[int, ...] | None = None


def make_plan(members: Sequence[Member], context: Context) -> Plan:
    """Decides how members become one whole."""
    members = with_true_batches(members)
    first = members[0]
    refused = _refusal(members)
    if refused:
        return Plan(first.form.shape, first.form.dtype, reason=refused)
    placed = [place(member, context.nature) for member in members]
    if any(other != placed[0] for other in placed):
        reason = "ranks describe it differently: what is cut on one is whole on another"
        return Plan(first.form.shape, first.form.dtype, reason=reason)
    settled, ordered = _resolve_by_shape(members, placed[0], context)
    if settled.unknown:
        axes = " and ".join(settled.unknown)
        reason = f"how axis {axes} cuts it was not recorded (give a rule for its class, or record with layout facts)"
        return Plan(first.form.shape, first.form.dtype, reason=reason)
    return _assemble(members, settled, context, ordered=ordered)


def _refusal(members: Sequence[Member]) -> str:
    first = members[0].form
    if any(member.form.dtype != first.dtype for member in members):
        return f"ranks hold it in different formats: {', '.join(sorted({m.form.dtype for m in members}))}"
    for member in members:
        if member.form.kind != "dense":
            return f"rank {member.rank} holds no plain values ({member.form.kind})"
        if member.layout is not None and member.layout.shape != member.form.shape:
            said = member.layout.shape
            return f"rank {member.rank}: its layout describes shape {said}, recorded was {member.form.shape}"
    return ""


def _resolve_by_shape(members: Sequence[Member], placed: Placed, context: Context) -> tuple[Placed, bool]:
    """Settles axes that are unknown, or of which only the mesh was told, by the shape of the other side's whole."""
    if not placed.unknown:
        for axis in _supposed(members[0], placed):
            settled, ordered = _settle(members, replace(placed, unknown=(axis,)), context)
            if not ordered:
                return settled, ordered
    return _settle(members, placed, context)


def _supposed(member: Member, placed: Placed) -> list[str]:
    """Gives the axes that are taken to replicate since nothing was recorded of the tensor: a supposition, no fact."""
    if member.layout is not None:
        return []
    said = {rule.axis for rule in member.rules} | {axis for axis, _ in (*placed.joined, *placed.partial)}
    known = said | {"pp", "ep", *data_axes(member.mesh)}
    return [axis for axis, (_, size) in member.mesh.items() if size > 1 and axis not in known]


def _settle(members: Sequence[Member], placed: Placed, context: Context) -> tuple[Placed, bool]:
    """Settles unknown axes by the other side's whole shape: a fact of shapes, where just one reading fits.

    Which piece is where in the whole stays unknown then, so only what does not depend on order can be combined.
    """
    whole = context.whole
    local = members[0].layout.global_shape if members[0].layout is not None else members[0].form.shape
    open_axes = [*placed.unknown, *(axis for axis, _ in placed.joined if _is_data(members[0], axis))]
    if whole is None or len(whole) != len(local) or not open_axes:
        return placed, True
    if whole == local:
        kept = tuple(entry for entry in placed.joined if entry[0] not in open_axes)
        return replace(placed, joined=kept, unknown=()), True
    if len(placed.unknown) != 1:
        return placed, True
    (axis,) = placed.unknown
    size = members[0].mesh[axis][1]
    others = math.prod(members[0].mesh[a][1] for a, dim in placed.joined if dim == 0)
    expected = (local[0] * others, *local[1:]) if placed.joined and local else local
    cut = [dim for dim, (a, b) in enumerate(zip(expected, whole, strict=True)) if a != b]
    if not cut:
        return replace(placed, unknown=()), True
    if len(cut) == 1 and expected[cut[0]] * size == whole[cut[0]]:
        return replace(placed, joined=(*placed.joined, (axis, cut[0])), unknown=()), False
    return placed, True


def _is_data(member: Member, axis: str) -> bool:
    return axis in data_axes(member.mesh)


@dataclass(frozen=True, slots=True)
class _Term:
    """Where a member belongs: cell, part of the cell, place among the partial terms."""

    cell: tuple[int, ...]
    part: Layout
    term: tuple[int, ...]


def _assemble(members: Sequence[Member], placed: Placed, context: Context, *, ordered: bool) -> Plan:
    form = members[0].form
    terms = [_term(member, placed) for member in members]
    owners: dict[_Term, int] = {}
    replicas: list[tuple[int, int, str]] = []
    for index, term in enumerate(terms):
        owner = owners.setdefault(term, index)
        if owner != index:
            replicas.append((index, owner, _axes_between(members[owner], members[index])))
    kept = tuple(Kept(index, term.cell, term.part) for term, index in owners.items())
    shape, fault = _whole_of(kept, terms, placed, context, members)
    if fault:
        return Plan(form.shape, form.dtype, reason=fault, replicas=tuple(replicas))
    undone = tuple(1.0 / members[k.member].layout.scale if members[k.member].layout else 1.0 for k in kept)  # type: ignore[union-attr]
    unreduced = tuple(axis for axis, op in placed.partial if op == "")
    single_cell = len({k.cell for k in kept}) == 1
    adds = single_cell and (all(_is_keyed(members[k.member]) for k in kept) or len({k.part for k in kept}) == 1)
    return Plan(
        shape,
        form.dtype,
        kept=kept,
        replicas=tuple(replicas),
        how=_how(kept, placed),
        joined=tuple((axis, dim % len(shape) if shape else 0) for axis, dim in placed.joined),
        adds=adds,
        ordered=ordered,
        undone=undone,
        terms=_expected_terms(members[0], placed, context),
        reason=_unreducible(placed),
        unreduced=unreduced,
    )


def _term(member: Member, placed: Placed) -> _Term:
    cell = tuple(member.coordinate(axis) for axis, _ in placed.joined)
    term = tuple(member.coordinate(axis) for axis, _ in placed.partial)
    layout = member.layout
    return _Term(cell, _bare(layout) if layout is not None else Layout.whole(member.form.shape), term)


def _bare(layout: Layout) -> Layout:
    """Gives where a layout puts its elements, without what else it says: equal for replicas."""
    return Layout(layout.global_shape, layout.spans, layout.flat)


def _whole_of(
    kept: Sequence[Kept], terms: Sequence[_Term], placed: Placed, context: Context, members: Sequence[Member]
) -> tuple[tuple[int, ...], str]:
    """Gives the shape of the whole, or why what is kept does not make it."""
    cells: dict[tuple[int, ...], dict[Layout, set[tuple[int, ...]]]] = {}
    for k in kept:
        cells.setdefault(k.cell, {}).setdefault(k.part, set()).add(terms[k.member].term)
    shapes: dict[tuple[int, ...], tuple[int, ...]] = {}
    expected = _expected_terms(members[0], placed, context)
    for cell, parts in cells.items():
        shapes[cell] = next(iter(parts)).global_shape
        fault = fault_of_tiling(list(parts), shapes[cell])
        if fault:
            return (), fault
        if any(len(found) < expected for found in parts.values()):
            axes = " and ".join(axis for axis, _ in placed.partial)
            return (), f"a partial value along axis {axes} was not recorded on every rank"
    missing = _missing_cells(set(cells), placed, context)
    if missing:
        return (), missing
    return _joined_shape(shapes, placed.joined)


def _expected_terms(member: Member, placed: Placed, context: Context) -> int:
    """Counts the partial terms that a part needs; experts have them only on the ranks that hold the expert."""
    axes = [axis for axis, _ in placed.partial]
    if context.present == context.recorded:
        return math.prod(member.mesh[axis][1] for axis in axes)
    return len({tuple(context.meshes[rank].get(axis, (0, 1))[0] for axis in axes) for rank in context.present})


def _missing_cells(cells: set[tuple[int, ...]], placed: Placed, context: Context) -> str:
    """Says which pieces along joined axes no rank recorded, though it has the node."""
    axes = [axis for axis, _ in placed.joined]
    if not axes:
        return ""
    wanted: dict[tuple[int, ...], int] = {}
    for rank in sorted(context.present):
        mesh = context.meshes[rank]
        wanted.setdefault(tuple(mesh.get(axis, (0, 1))[0] for axis in axes), rank)
    lacking = [rank for cell, rank in wanted.items() if cell not in cells]
    if lacking:
        return f"rank {lacking[0]} did not record its piece"
    mesh = context.meshes[min(context.present)]
    size = math.prod(mesh[axis][1] for axis in axes)
    everywhere = context.present == context.recorded or len(cells) > 1
    if everywhere and len(cells) < size and _run_lacks_ranks(context):
        return f"only {len(cells)} of {size} pieces along axis {' and '.join(axes)} were recorded: ranks are missing"
    return ""


def _run_lacks_ranks(context: Context) -> bool:
    mesh = next(iter(context.meshes.values()))
    return len(context.recorded) < math.prod(size for axis, (_, size) in mesh.items() if axis != "ep")


def _joined_shape(
    shapes: Mapping[tuple[int, ...], tuple[int, ...]], joined: Sequence[tuple[str, int]]
) -> tuple[tuple[int, ...], str]:
    """Gives the shape of cells joined along their axes, the last axis first, or why they do not fit."""
    for position in reversed(range(len(joined))):
        axis, dim = joined[position]
        rows: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
        for cell in sorted(shapes):
            rows.setdefault(cell[:position], []).append(shapes[cell])
        shapes = {}
        for above, pieces in rows.items():
            if len(pieces) > 1 and not pieces[0]:
                return (), f"a scalar of each rank along axis {axis}: how they make one is not recorded"
            if len(pieces) == 1 and not pieces[0]:
                shapes[above] = pieces[0]
                continue
            at = dim % len(pieces[0])
            if any(_without(p, at) != _without(pieces[0], at) for p in pieces):
                return (), f"pieces along axis {axis} do not fit together: {pieces[0]} and others"
            shapes[above] = tuple(sum(p[d] for p in pieces) if d == at else n for d, n in enumerate(pieces[0]))
    return shapes[()], ""


def _without(shape: tuple[int, ...], dim: int) -> tuple[int, ...]:
    return (*shape[:dim], *shape[dim + 1 :])


def _is_keyed(member: Member) -> bool:
    """Tells whether a member's sketch and checksum count elements by their index in the whole."""
    return member.layout is None or member.layout.index == "global"


def _how(kept: Sequence[Kept], placed: Placed) -> str:
    if len(kept) == 1:
        return ALONE
    if not placed.partial:
        return JOIN
    return MEAN if all(op in ("avg", "mean") for _, op in placed.partial) else SUM


def _unreducible(placed: Placed) -> str:
    """Says why partial values cannot be combined here; "" where they can, or where the reduced gradient will tell."""
    ops = {op for _, op in placed.partial if op}
    linear = ops <= {"sum"} or ops <= {"avg", "mean"}
    return "" if linear else f"partial values that wait for {', '.join(sorted(ops))} have not been combined yet"


def _axes_between(a: Member, b: Member) -> str:
    """Names the axes along which two ranks differ."""
    return " and ".join(axis for axis in a.mesh if a.coordinate(axis) != b.coordinate(axis)) or "rank"
