"""Gathered parameters against the shards that they were gathered from: what modules computed with, rank by rank.

No tensor is needed for it: the checksums of shards add up to that of the whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.comparison import Finding
from msprobe.core.matching.extras import GATHERED
from msprobe.core.placement import read_layout
from msprobe.core.records import HAS
from msprobe.core.sites import Direction, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.merging.view import MergedRank

_FORWARD = tuple(Direction).index(Direction.FORWARD)
_DERIVED, _PARAMETER = (tuple(Role).index(role) for role in (Role.DERIVED, Role.PARAMETER))
_CHECKSUMS = HAS["checksums"]


def check_gathered(name: str, merged: MergedRank) -> list[Finding]:
    """Says on which ranks a gathered parameter is not what its shards make, in the same format."""
    wrong = [entry for entry in _pairs(merged) if entry[2]]
    if not wrong:
        return []
    whole, step, ranks = wrong[0]
    told = " and ".join(merged.describe(rank) for rank in ranks)
    also = f" So are {len(wrong) - 1:,} more." if len(wrong) > 1 else ""
    text = (
        f"In the {name} parameter {whole} at step {step}, as gathered on rank {told}, is not what its shards make "
        f"(by checksum): the all-gather or something after it changed it.{also}"
    )
    return [Finding("gathered", text)]


def _pairs(merged: MergedRank) -> list[tuple[str, int, list[int]]]:
    """Gives each gathered parameter: its name, the step, and the ranks where it differs from its shards."""
    parameters = _checksums_of_wholes(merged)
    members = merged.members
    found = []
    for whole in np.flatnonzero(_is_gathered(merged)[members.site]).tolist():
        path, _, _, argument, _ = merged.catalogue.sites[int(members.site[whole])]
        step, parameter = int(members.step[whole]), argument.removesuffix(GATHERED)
        known = parameters.get((path, parameter, step))
        ranks = _unlike(merged, whole, known) if known is not None else []
        found.append((f"{path}.{parameter}" if path else parameter, step, ranks))
    return found


def _unlike(merged: MergedRank, whole: int, known: tuple[str, int]) -> list[int]:
    """Gives the ranks on which a gathered parameter is not the known one.

    What another axis (tensor parallelism) cuts is the sum over the ranks along that axis.
    """
    members = merged.members
    start = int(members.starts[whole])
    groups: dict[tuple[int, ...], tuple[dict[str, int], list[int]]] = {}
    for member in range(start, start + int(members.sizes[whole])):
        rank, number = merged.ranks[int(members.rank[member])], merged.numbers[int(members.rank[member])]
        form, row = merged.local_forms[int(members.form[member])], int(members.row[member])
        if form.dtype != known[0] or not int(rank.records["has"][row]) & _CHECKSUMS:
            continue
        layout = read_layout(form.layout)
        cut = {placement.axis for placement in layout.placements if placement.kind == "shard"} if layout else set()
        if layout is not None and cut and layout.index != "global":
            continue
        place = tuple(at for axis, (at, _) in sorted(merged.meshes[number].items()) if axis not in cut)
        parts, ranks = groups.setdefault(place, ({}, []))
        parts[form.layout if cut else ""] = int(rank.records["checksum"][row])
        ranks.append(number)
    return sorted(n for parts, ranks in groups.values() if sum(parts.values()) % 2**64 != known[1] for n in ranks)


def _is_gathered(merged: MergedRank) -> NDArray[np.bool_]:
    keys = merged.catalogue.sites
    return np.array([key[2] == _DERIVED and key[3].endswith(GATHERED) for key in keys], dtype=bool)


def _checksums_of_wholes(merged: MergedRank) -> dict[tuple[str, str, int], tuple[str, int]]:
    """Gives format and checksum of parameters by node, name and step, where their shards tell it."""
    records = merged.records
    if "checksum" not in records or not _is_gathered(merged).any():
        return {}
    keys = merged.catalogue.sites
    forward = np.array([key[1] == _FORWARD and key[2] == _PARAMETER for key in keys], dtype=bool)
    rows = np.flatnonzero(forward[records["site"]] & (records["has"] & _CHECKSUMS != 0))
    return {
        (keys[site][0], keys[site][3], step): (merged.forms[form].dtype, checksum)
        for site, step, form, checksum in zip(
            *(records[column][rows].tolist() for column in ("site", "step", "form", "checksum")), strict=True
        )
    }
