"""Put the saved values of parts together: tiles by their spans, pieces one after the other, partial values summed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.merging.plans import ALONE, MEAN, SUM, Plan
from msprobe.core.placement import Layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Row sums and column sums of a tensor's content.
Vectors = tuple["NDArray[np.uint64]", "NDArray[np.uint64]"]


def assemble(plan: Plan, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Gives the whole of ``plan.shape`` from the values of its kept members, in their order."""
    if plan.how == ALONE:
        return parts[0].reshape(plan.shape)
    tiles: dict[tuple[tuple[int, ...], Layout], list[NDArray[Any]]] = {}
    for kept, values in zip(plan.kept, parts, strict=True):
        tiles.setdefault((kept.cell, kept.part), []).append(values)
    cells: dict[tuple[int, ...], list[tuple[Layout, NDArray[Any]]]] = {}
    for (cell, part), terms in tiles.items():
        cells.setdefault(cell, []).append((part, _reduced(terms, plan.how)))
    return _joined({cell: _tiled(found) for cell, found in cells.items()}, plan.joined)


def assemble_vectors(plan: Plan, parts: Sequence[Vectors]) -> Vectors | None:
    """Gives row and column sums of the whole (``core.content_vectors``); None where places are not known."""
    if plan.how == ALONE:
        return parts[0]
    if plan.how in (SUM, MEAN) or not plan.ordered or len({kept.cell for kept in plan.kept}) > 1 or not plan.shape:
        return None
    rows, columns = np.zeros(plan.shape[0], np.uint64), np.zeros(plan.shape[1:], np.uint64)
    for kept, (of_rows, of_columns) in zip(plan.kept, parts, strict=True):
        if kept.part.spans is None or kept.part.flat is not None:
            return None
        first, *rest = (_indices(spans) for spans in kept.part.spans)
        rows[first] += of_rows
        columns[np.ix_(*rest)] += of_columns.reshape([len(index) for index in rest])
    return rows, columns.reshape(-1)


def _indices(spans: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    return np.concatenate([np.arange(start, start + length) for start, length in spans] or [np.zeros(0, np.int64)])


def assemble_rows(plan: Plan, parts: Sequence[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]] | None:
    """Gives the row statistics of the whole; None where a part does not hold whole rows.

    Rows are the entries of all dimensions but the last; their statistics are joined like a tensor without it.
    """
    if plan.how == ALONE:
        return dict(parts[0])
    if (
        plan.how in (SUM, MEAN)
        or len(plan.shape) < 2
        or any(dim % len(plan.shape) == len(plan.shape) - 1 for _, dim in plan.joined)
    ):
        return None
    cells: dict[tuple[int, ...], list[tuple[Layout, int]]] = {}
    for index, kept in enumerate(plan.kept):
        spans, width = kept.part.spans, kept.part.global_shape[-1]
        if kept.part.flat is not None or spans is None or spans[-1] != (((0, width),) if width else ()):
            return None
        rows = Layout(kept.part.global_shape[:-1], spans[:-1])
        cells.setdefault(kept.cell, []).append((rows, index))
    found: dict[str, NDArray[Any]] = {}
    for name in parts[0]:
        tiles = {
            cell: _tiled([(rows, parts[index][name].reshape(rows.shape)) for rows, index in held])
            for cell, held in cells.items()
        }
        found[name] = _joined(tiles, plan.joined).reshape(-1)
    return found


def _reduced(terms: Sequence[NDArray[Any]], how: str) -> NDArray[Any]:
    if len(terms) == 1:
        return terms[0]
    total: NDArray[Any] = np.add.reduce(terms, dtype=np.complex128 if terms[0].dtype.kind == "c" else np.float64)
    return total / len(terms) if how == MEAN else total


def _tiled(tiles: Sequence[tuple[Layout, NDArray[Any]]]) -> NDArray[Any]:
    first, values = tiles[0]
    if len(tiles) == 1:
        return values.reshape(first.global_shape)
    whole = np.empty(first.global_shape, values.dtype)
    flat = whole.reshape(-1)
    for part, held in tiles:
        if part.flat is None and part.spans is not None:
            index = np.ix_(*(_positions(intervals) for intervals in part.spans))
            whole[index] = held.reshape(part.shape)
        else:
            starts, length = part.runs()
            flat[(starts[:, None] + np.arange(length)).reshape(-1)] = held.reshape(-1)
    return whole


def _positions(intervals: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
    if not intervals:
        return np.zeros(0, dtype=np.int64)
    return np.concatenate([np.arange(start, start + length) for start, length in intervals])


def _joined(cells: dict[tuple[int, ...], NDArray[Any]], joined: Sequence[tuple[str, int]]) -> NDArray[Any]:
    """Joins cells along their axes, the last axis first."""
    for position in reversed(range(len(joined))):
        rows: dict[tuple[int, ...], list[NDArray[Any]]] = {}
        for cell in sorted(cells):
            rows.setdefault(cell[:position], []).append(cells[cell])
        dim = joined[position][1]
        cells = {above: held[0] if len(held) == 1 else np.concatenate(held, axis=dim) for above, held in rows.items()}
    return cells[()]
