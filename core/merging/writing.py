"""Write a merged run: one rank's recording, that opens and compares like any other."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.errors import RunError
from msprobe.core.graph import EdgeSource
from msprobe.core.merging.assembling import assemble
from msprobe.core.merging.plans import MEAN, SUM
from msprobe.core.records import RECORD_COLUMNS, VECTORS
from msprobe.core.run import layout
from msprobe.core.run.batch import Batch, Fact, RankInfo, RunHeader, SavedRows, SavedTensor, SiteRow
from msprobe.core.run.segment_writer import SegmentWriter
from msprobe.core.sites import Direction, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.merging.plans import Plan
    from msprobe.core.merging.run import MergedRun
    from msprobe.core.merging.view import MergedRank

Bar = Callable[[Iterable[int]], Iterable[int]]

#: Facts that say what the records of a node were made from.
MERGED = "merged"
_PARAMETER = tuple(Role).index(Role.PARAMETER)
#: Bytes of tensors after which a step is committed in parts.
_PART_BYTES = 256 * 2**20


def write_merged(run: MergedRun, out: Path, bar: Bar) -> int:
    """Writes a merged run into a new directory; gives the number of its records.

    Args:
        run: The run, seen as one.
        out: The directory, which must not hold anything yet.
        bar: Shows progress over steps.

    Raises:
        RunError: The directory holds something, or cannot be written to.
    """
    if (out / layout.RUN_FILE).exists() or (out.is_dir() and any(out.iterdir())):
        raise RunError(f"{out}: holds files already; name a new directory for the merged run")
    try:
        return _write(run, out, bar)
    except OSError as error:
        raise RunError(f"{out}: cannot be written: {error.strerror or error}") from error


def _write(run: MergedRun, out: Path, bar: Bar) -> int:
    merged = run.merged
    what = frozenset[str]().union(*(rank.what for rank in merged.ranks))
    writer = SegmentWriter(out, rank=RankInfo(device=merged.info.device), header=_header(run), what=what)
    try:
        first = True
        facts = sorted([*merged.facts, *_made_from(merged)], key=lambda fact: fact.step)
        for step in bar(list(merged.steps)):
            due = [fact for fact in facts if fact.step <= step]
            facts = facts[len(due) :]
            for batch in _batches(merged, step):
                if first:
                    _add_catalogue(batch, merged)
                batch.facts, due, first = due, [], False
                writer.append(batch)
        writer.note(merged.events)
    finally:
        writer.close()
    return merged.num_records


def _header(run: MergedRun) -> RunHeader:
    source = run.header
    ranks = run.source.ranks
    mesh = {axis: size for axis, (_, size) in next(iter(run.meshes.values())).items()}
    told = {"run": str(run.path), "ranks": len(ranks), "mesh": mesh}
    return RunHeader(
        framework=source.framework,
        versions=source.versions,
        config=source.config,
        arguments=source.arguments,
        context={**source.context, "merged_from": told},
        perturbed=source.perturbed,
        altered=source.altered,
    )


def _add_catalogue(batch: Batch, merged: MergedRank) -> None:
    sites, kinds = merged.sites, tuple(EdgeSource)
    directions, roles = tuple(Direction), tuple(Role)
    columns = (sites.node, sites.direction, sites.role, sites.argument, sites.call, sites.stack)
    batch.stacks = merged.stacks
    batch.nodes = list(merged.nodes)
    batch.sites = [
        SiteRow(node, directions[direction], roles[role], argument, call, stack)
        for node, direction, role, argument, call, stack in zip(*(column.tolist() for column in columns), strict=True)
    ]
    batch.forms = list(merged.forms)
    batch.edges = [
        (source, target, kinds[kind])
        for (source, target), kind in zip(merged.edges.tolist(), merged.edges_known_by.tolist(), strict=True)
    ]


def _batches(merged: MergedRank, step: int) -> Iterator[Batch]:
    """Gives the records of a step, cut where their tensors would need much memory."""
    rows = np.flatnonzero(merged.records["step"] == step)
    batch, begin, held = Batch(step, complete=False), 0, 0
    for at, row in enumerate(rows.tolist()):
        saved = _saved_tensor(merged, row)
        if saved is not None:
            batch.tensors.append(saved)
            held += saved.nbytes
        batch.rows += _saved_rows(merged, row)
        if held > _PART_BYTES and at + 1 < len(rows):
            yield _filled(batch, merged, rows[begin : at + 1])
            batch, begin, held = Batch(step, complete=False), at + 1, 0
    batch.complete = True
    yield _filled(batch, merged, rows[begin:])


def _filled(batch: Batch, merged: MergedRank, rows: NDArray[np.int64]) -> Batch:
    records = merged.records
    batch.records = {c.name: records[c.name][rows] for c in RECORD_COLUMNS if c.name in records}
    batch.records["tensor"] = np.where(np.isin(rows, [t.seq for t in batch.tensors]), rows, -1)
    if "rows" in batch.records:
        with_rows = [r.seq for r in batch.rows if "norm" in r.columns]
        batch.records["rows"] = np.where(np.isin(rows, with_rows), rows, -1)
    return batch


def _saved_tensor(merged: MergedRank, row: int) -> SavedTensor | None:
    """Gives the exact bits of a record's values; of what had to be computed (sums, scales) the values in float64."""
    if merged.records["tensor"][row] < 0:
        return None
    plan, members = merged.kept_members(row)
    if plan.how in (SUM, MEAN) or any(factor != 1.0 for factor in plan.undone):
        values = merged.tensor(row)
        return None if values is None else _of_values(row, values)
    bits = [merged.member_bits(member) for member in members]
    if any(part is None for part in bits):
        return None
    return _joined_bits(row, plan, [part for part in bits if part is not None], merged, members)


def _of_values(row: int, values: NDArray[Any]) -> SavedTensor:
    kind = "complex128" if values.dtype.kind == "c" else "fp64"
    wide = values.astype(np.complex128 if kind == "complex128" else np.float64)
    return SavedTensor(row, kind, wide.shape, wide)


def _joined_bits(
    row: int, plan: Plan, bits: list[tuple[str, NDArray[np.uint8]]], merged: MergedRank, members: list[int]
) -> SavedTensor:
    shapes = [merged.local_forms[int(merged.members.form[member])].shape for member in members]
    width = max((len(data) // max(int(np.prod(shape)), 1) for (_, data), shape in zip(bits, shapes, strict=True)))
    parts = [
        np.ascontiguousarray(data).view(f"V{max(width, 1)}").reshape(shape)
        for (_, data), shape in zip(bits, shapes, strict=True)
    ]
    whole = np.ascontiguousarray(assemble(plan, parts))
    return SavedTensor(row, bits[0][0], plan.shape, whole.view(np.uint8).reshape(-1))


def _saved_rows(merged: MergedRank, row: int) -> list[SavedRows]:
    columns: dict[str, NDArray[Any]] = dict(merged.row_statistics(row) or {})
    if merged.sites.role[merged.records["site"][row]] == _PARAMETER:
        vectors = merged.content_vectors(row)
        columns |= dict(zip(VECTORS, vectors, strict=True)) if vectors is not None else {}
    return [SavedRows(row, columns)] if columns else []


def _made_from(merged: MergedRank) -> list[Fact]:
    """Says once for each site and way of merging what its records were made from."""
    members = merged.members
    pairs = np.stack([members.site, members.plan], axis=1)
    _, first = np.unique(pairs, axis=0, return_index=True)
    places = merged.places
    directions, roles = tuple(Direction), tuple(Role)
    facts = []
    for whole in first.tolist():
        node, direction, role, argument, _ = merged.catalogue.sites[int(members.site[whole])]
        name = f"{directions[direction].value} {roles[role].value} {argument}"
        number = merged.node_number(node)
        told = merged.provenance(int(places[whole])).words()
        facts.append(Fact(int(members.step[whole]), int(members.micro_step[whole]), number, MERGED, name, told))
    return facts
