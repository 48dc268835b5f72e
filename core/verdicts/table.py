"""The working table of a comparison: one row for each pair of records, with the columns of both sides."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.dtypes import FORMATS, is_discrete, unit_roundoff
from msprobe.core.records import HAS, SKETCH_SIZE, STATISTICS, Status
from msprobe.core.sites import Direction, Form, NodeKind, Role
from msprobe.core.sketches import estimate_norm

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from msprobe.core.matching.nodes import NodePairs
    from msprobe.core.matching.rows import RowPairs
    from msprobe.core.matching.sites import SitePairs
    from msprobe.core.matching.views import RankView


DIRECTIONS = tuple(direction.value for direction in Direction)
ROLES = tuple(role.value for role in Role)
UNJUDGED_STATUS = 255


@dataclass(frozen=True)
class RankMatch:
    """How one rank of the candidate and one of the reference were matched."""

    rank: int
    candidate: RankView
    reference: RankView
    nodes: NodePairs
    sites: SitePairs
    rows: RowPairs
    #: How many steps were compared as wholes, since the sides cut them into different numbers of micro-steps.
    joined_steps: int = 0
    #: Where the rank stands on the mesh, in words: "dp 1, tp 0"; "" where it is not known.
    place: str = ""


@dataclass
class Side:
    """One side's columns, one entry per pair; NaN, zero or -1 where the side has no record (``present`` tells)."""

    present: NDArray[np.bool_]
    row: NDArray[np.int64]
    seq: NDArray[np.int64]
    status: NDArray[np.uint8]
    dtype: NDArray[np.object_]
    shape: NDArray[np.object_]
    form_kind: NDArray[np.object_]
    elements: NDArray[np.float64]
    last: NDArray[np.float64]
    dimensions: NDArray[np.int64]
    roundoff: NDArray[np.float64]
    discrete: NDArray[np.bool_]
    statistics: dict[str, NDArray[np.float64]]
    sketch: NDArray[np.float64] | None
    checksum: NDArray[np.uint64]
    has_checksum: NDArray[np.bool_]
    #: Sum over elements wherever they stand; also of records joined from several, which have no positional checksum.
    content_sum: NDArray[np.uint64]
    has_content_sum: NDArray[np.bool_]
    tensor: NDArray[np.int64]
    #: Why a row has no numbers, where more is known than its status.
    reasons: dict[int, str] = field(default_factory=dict)


@dataclass
class SiteTable:
    """Facts of the common sites, one entry per site: who it is on either side, and how it was matched."""

    rank: NDArray[np.int64]
    node: NDArray[np.int64]
    candidate_node: NDArray[np.object_]
    reference_node: NDArray[np.object_]
    candidate_class: NDArray[np.object_]
    reference_class: NDArray[np.object_]
    is_op: NDArray[np.bool_]
    is_leaf: NDArray[np.bool_]
    direction: NDArray[np.uint8]
    role: NDArray[np.uint8]
    argument: NDArray[np.object_]
    candidate_call: NDArray[np.int64]
    reference_call: NDArray[np.int64]
    reason: NDArray[np.object_]
    confidence: NDArray[np.float64]


@dataclass
class PairTable:
    """All pairs of all ranks."""

    site: NDArray[np.int64]
    step: NDArray[np.int64]
    micro_step: NDArray[np.int64]
    rank: NDArray[np.int64]
    candidate: Side
    reference: Side
    sites: SiteTable
    matches: tuple[RankMatch, ...]
    offsets: dict[int, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.site)

    @property
    def matched(self) -> NDArray[np.bool_]:
        """Tells for each row whether both sides are there."""
        return self.candidate.present & self.reference.present

    @property
    def order(self) -> NDArray[np.int64]:
        """Gives the order of execution of each row: the candidate's sequence number, else the reference's."""
        return np.where(self.candidate.present, self.candidate.seq, self.reference.seq)

    @cached_property
    def norm(self) -> NDArray[np.float64]:
        """The L2 norm of each row: the reference's, else the candidate's, else estimated from the sketch."""
        reference, candidate = (side.statistics["norm"] for side in (self.reference, self.candidate))
        norm: NDArray[np.float64] = np.where(np.isnan(reference), candidate, reference)
        if self.reference.sketch is not None and np.isnan(norm).any():
            norm = np.where(np.isnan(norm), estimate_norm(self.reference.sketch), norm)
        return norm

    def is_role(self, *roles: Role) -> NDArray[np.bool_]:
        """Tells for each row whether its site has one of the roles."""
        return np.isin(self.sites.role[self.site], [ROLES.index(role.value) for role in roles])

    def is_direction(self, *directions: Direction) -> NDArray[np.bool_]:
        """Tells for each row whether its site has one of the directions."""
        return np.isin(self.sites.direction[self.site], [DIRECTIONS.index(d.value) for d in directions])


def build_table(matches: Sequence[RankMatch]) -> PairTable:
    """Gathers the pairs of all ranks into one table."""
    offsets, start = {}, 0
    for match in matches:
        offsets[match.rank] = start
        start += match.sites.count
    rows = [match.rows for match in matches]
    return PairTable(
        site=_join([r.site + offsets[m.rank] for r, m in zip(rows, matches, strict=True)], np.int64),
        step=_join([r.step for r in rows], np.int64),
        micro_step=_join([r.micro_step for r in rows], np.int64),
        rank=_join(
            [np.full(len(r.site), m.rank, dtype=np.int64) for r, m in zip(rows, matches, strict=True)], np.int64
        ),
        candidate=_side([(m.candidate, m.rows.candidate) for m in matches]),
        reference=_side([(m.reference, m.rows.reference) for m in matches]),
        sites=_site_table(matches),
        matches=tuple(matches),
        offsets=offsets,
    )


def _join(parts: Sequence[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=dtype)


def _side(parts: Sequence[tuple[RankView, NDArray[np.int64]]]) -> Side:
    forms = [_form_columns(run.forms) for run, _ in parts]
    picks = [
        np.where(rows >= 0, run.records["form"].astype(np.int64)[rows] if len(run.records["form"]) else -1, -1)
        for run, rows in parts
    ]

    def of_form(name: str) -> NDArray[Any]:
        return _join([columns[name][pick] for columns, pick in zip(forms, picks, strict=True)], object)

    def of_record(name: str, absent: float, dtype: Any) -> NDArray[Any]:
        return _join([_gather(run.records.get(name), rows, absent, dtype) for run, rows in parts], dtype)

    held = of_record("has", 0, np.uint8)
    statistics = {name: of_record(name, math.nan, np.float64) for name in STATISTICS}
    for column in statistics.values():
        column[held & HAS["statistics"] == 0] = math.nan
    sketch = (
        _join([_gather_sketch(run, rows) for run, rows in parts], np.float64) if np.any(held & HAS["sketch"]) else None
    )
    row = _join([rows for _, rows in parts], np.int64)
    return Side(
        present=row >= 0,
        row=row,
        seq=of_record("seq", -1, np.int64),
        status=of_record("status", UNJUDGED_STATUS, np.uint8),
        dtype=of_form("dtype"),
        shape=of_form("shape"),
        form_kind=of_form("kind"),
        elements=of_form("elements").astype(np.float64),
        last=of_form("last").astype(np.float64),
        dimensions=of_form("dimensions").astype(np.int64),
        roundoff=of_form("roundoff").astype(np.float64),
        discrete=of_form("discrete").astype(bool),
        statistics=statistics,
        sketch=sketch,
        checksum=of_record("checksum", 0, np.uint64),
        has_checksum=held & HAS["checksums"] != 0,
        content_sum=of_record("content_sum", 0, np.uint64),
        has_content_sum=(held & HAS["checksums"] != 0) | of_record("adds_content", 0, np.bool_),
        tensor=of_record("tensor", -1, np.int64),
        reasons=_reasons(parts),
    )


def _reasons(parts: Sequence[tuple[RankView, NDArray[np.int64]]]) -> dict[int, str]:
    """Gives what views know of records without numbers, by row of the table."""
    found, start = {}, 0
    for run, rows in parts:
        known = getattr(run, "reasons", None)
        if known:
            there = np.flatnonzero(np.isin(rows, list(known)))
            found.update({start + i: known[int(rows[i])] for i in there.tolist()})
        start += len(rows)
    return found


def _gather(column: NDArray[Any] | None, rows: NDArray[np.int64], absent: float, dtype: Any) -> NDArray[Any]:
    out = np.full(len(rows), absent, dtype=dtype)
    there = rows >= 0
    if column is not None and len(column):
        out[there] = column[rows[there]]
    return out


def _gather_sketch(run: RankView, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    out = np.full((len(rows), SKETCH_SIZE), math.nan)
    column = run.records.get("sketch")
    there = rows >= 0
    if column is not None and len(column):
        out[there] = column[rows[there]]
    return out


def _form_columns(forms: Sequence[Form]) -> dict[str, NDArray[Any]]:
    """Gives the forms as columns, with one entry more at the end for "no record"."""
    shapes = [form.shape for form in forms]
    text = ["x".join(map(str, shape)) for shape in shapes]
    complex_factor = [
        2.0 if FORMATS.get(form.dtype) and FORMATS[form.dtype].kind == "complex" else 1.0 for form in forms
    ]
    return {
        "dtype": np.array([*(form.dtype for form in forms), ""], dtype=object),
        "shape": np.array([*text, ""], dtype=object),
        "kind": np.array([*(form.kind for form in forms), ""], dtype=object),
        "elements": np.array(
            [*(math.prod(s) * c for s, c in zip(shapes, complex_factor, strict=True)), 0.0], dtype=np.float64
        ),
        "last": np.array([*(shape[-1] if shape else 1 for shape in shapes), 1], dtype=np.float64),
        "dimensions": np.array([*(len(shape) for shape in shapes), -1], dtype=np.int64),
        "roundoff": np.array([*(unit_roundoff(form.dtype) for form in forms), 0.0], dtype=np.float64),
        "discrete": np.array([*(is_discrete(form.dtype) for form in forms), False], dtype=bool),
    }


def _site_table(matches: Sequence[RankMatch]) -> SiteTable:
    parts = [_sites_of_rank(match) for match in matches]
    columns: dict[str, NDArray[Any]] = {}
    node_offset = 0
    for part in parts:
        part["node"] = part["node"] + node_offset
        node_offset = int(part["node"].max(initial=node_offset - 1)) + 1
    for name in SiteTable.__dataclass_fields__:
        columns[name] = _join([part[name] for part in parts], object)
    return SiteTable(**columns)


def _sites_of_rank(match: RankMatch) -> dict[str, NDArray[Any]]:
    runs = (match.candidate, match.reference)
    sites = [_sites_by_number(numbers, match.sites.count) for numbers in (match.sites.candidate, match.sites.reference)]
    nodes = [_pick(run.sites.node.astype(np.int64), site, -1) for run, site in zip(runs, sites, strict=True)]
    first = sites[0] >= 0

    def of_either(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Takes the candidate's value where it has the site, else the reference's."""
        return np.where(first, columns[0], columns[1])

    def of_sites(name: str, absent: object) -> list[NDArray[Any]]:
        return [_pick(getattr(run.sites, name), site, absent) for run, site in zip(runs, sites, strict=True)]

    def of_nodes(name: str) -> list[NDArray[np.object_]]:
        return [_node_column(run, pick, name) for run, pick in zip(runs, nodes, strict=True)]

    def of_flags(flags: Callable[[RankView], list[bool]]) -> NDArray[np.bool_]:
        return of_either([np.array([*flags(run), False])[pick] for run, pick in zip(runs, nodes, strict=True)])

    columns = {
        "rank": np.full(match.sites.count, match.rank, dtype=np.int64),
        "is_op": of_flags(lambda run: [node.kind is NodeKind.OP for node in run.nodes]),
        "is_leaf": of_flags(_leaves),
        "direction": of_either(of_sites("direction", 0)),
        "role": of_either(of_sites("role", 0)),
        "argument": of_either(of_sites("argument", "")),
    }
    for name, attribute in (("node", "path"), ("class", "class_name")):
        columns[f"candidate_{name}"], columns[f"reference_{name}"] = of_nodes(attribute)
    columns["candidate_call"], columns["reference_call"] = (call.astype(np.int64) for call in of_sites("call", -1))
    return {**columns, **_pairing_of_sites(match, nodes, both=first & (sites[1] >= 0))}


def _sites_by_number(numbers: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Gives the side's own site for each common number, or -1."""
    found = np.full(count, -1, dtype=np.int64)
    known = np.flatnonzero(numbers >= 0)
    found[numbers[known]] = known
    return found


def _pairing_of_sites(
    match: RankMatch, nodes: list[NDArray[np.int64]], *, both: NDArray[np.bool_]
) -> dict[str, NDArray[Any]]:
    """Gives, for each site, the common number of its node, and how and how surely the node was paired."""
    partner, count = match.nodes.partner, len(match.candidate.nodes)
    of_reference = np.full(len(match.reference.nodes) + 1, -1, dtype=np.int64)
    of_reference[partner[partner >= 0]] = np.flatnonzero(partner >= 0)
    candidate = np.where(nodes[0] >= 0, nodes[0], of_reference[nodes[1]])
    why = [match.nodes.reasons.get(index) for index in range(count)]
    texts = np.array([*(reason.text if reason else "" for reason in why), ""], dtype=object)
    sureness = np.array([*(reason.confidence if reason else 0.0 for reason in why), 0.0])
    return {
        "node": np.where(candidate >= 0, candidate, count + nodes[1]),
        "reason": np.where(both, texts[candidate], ""),
        "confidence": np.where(both, sureness[candidate], 0.0),
    }


def _pick(column: NDArray[Any], index: NDArray[np.int64], absent: object) -> NDArray[Any]:
    out = np.full(len(index), absent, dtype=column.dtype)
    there = index >= 0
    out[there] = column[index[there]]
    return out


def _node_column(run: RankView, nodes: NDArray[np.int64], what: str) -> NDArray[np.object_]:
    column = np.array([*(getattr(node, what) for node in run.nodes), ""], dtype=object)
    return column[nodes]


def _leaves(run: RankView) -> list[bool]:
    """Tells which nodes contain no module of their own."""
    containers = {node.parent for node in run.nodes if node.kind is NodeKind.MODULE}
    return [node.path not in containers for node in run.nodes]


def usable(side: Side) -> NDArray[np.bool_]:
    """Tells for each row whether the side has measured values."""
    measured: NDArray[np.bool_] = side.present & (side.status == Status.MEASURED)
    return measured


def row_order(table: PairTable) -> NDArray[np.int64]:
    """Gives the order in which rows are shown: rank, step, micro-step, order of execution."""
    return np.lexsort((table.order, table.micro_step, table.step, table.rank))
