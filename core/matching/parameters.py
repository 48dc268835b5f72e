"""What is known of each module's parameters at the first recorded step: shapes, checksums, and their records."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.records import HAS
from msprobe.core.sites import NodeKind, Role

if TYPE_CHECKING:
    from msprobe.core.matching.views import RankView

_PARAMETER = tuple(Role).index(Role.PARAMETER)

#: Statistics that together are a fingerprint of a parameter.
_FINGERPRINT = ("min", "max", "mean", "mean_abs", "norm", "zero")


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of a module. ``row`` is its first record; ``tells`` whether its content is no constant."""

    node: int
    argument: str
    shape: tuple[int, ...]
    dtype: str
    row: int
    checksum: int | None
    content_sum: int | None
    fingerprint: tuple[float, ...] | None
    tells: bool

    @property
    def size(self) -> int:
        """How many elements it has."""
        return math.prod(self.shape)


Parameters = Mapping[int, Sequence[Parameter]]


def parameters_of(run: RankView) -> dict[int, list[Parameter]]:
    """Gives the parameters of each module, in the order of their sites."""
    records = run.records
    found: dict[int, list[Parameter]] = defaultdict(list)
    if not len(records["site"]):
        return found
    firsts = dict(zip(*(array.tolist() for array in np.unique(records["site"], return_index=True)), strict=True))
    for site in np.flatnonzero(run.sites.role == _PARAMETER).tolist():
        row = firsts.get(site)
        node = int(run.sites.node[site])
        if row is None or run.nodes[node].kind is not NodeKind.MODULE:
            continue
        if any(known.argument == str(run.sites.argument[site]) for known in found[node]):
            continue  # the same after an update
        found[node].append(_parameter(run, node, str(run.sites.argument[site]), row))
    return {node: parameters for node, parameters in found.items() if parameters}


def _parameter(run: RankView, node: int, argument: str, row: int) -> Parameter:
    records, has = run.records, int(run.records["has"][row])
    form = run.forms[int(records["form"][row])]
    summed, measured = has & HAS["checksums"], has & HAS["statistics"]
    return Parameter(
        node=node,
        argument=argument,
        shape=form.shape,
        dtype=form.dtype,
        row=row,
        checksum=int(records["checksum"][row]) if summed else None,
        content_sum=int(records["content_sum"][row]) if summed else None,
        fingerprint=tuple(float(records[name][row]) for name in _FINGERPRINT) if measured else None,
        tells=not measured or records["m2"][row] != 0,
    )
