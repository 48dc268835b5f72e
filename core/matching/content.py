"""Recognise modules by the content of their parameters, where names do not tell."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.records import HAS
from msprobe.core.sites import NodeKind, Role

if TYPE_CHECKING:
    from collections.abc import Hashable

    from msprobe.core.matching.views import RankView

_PARAMETER = tuple(Role).index(Role.PARAMETER)

#: Statistics that together are a fingerprint of a parameter.
_FINGERPRINT = ("min", "max", "mean", "mean_abs", "norm", "zero")


def parameter_content(run: RankView) -> dict[int, Hashable]:
    """Gives, for each module with parameters, a key of what they held at the first recorded step.

    The key is the checksum where one was recorded, else a fingerprint of statistics, with name and shape. A constant
    parameter (the ones of a norm, a zero bias) looks like any other: modules that hold nothing else get no key.
    """
    records = run.records
    if not len(records["site"]):
        return {}
    sites = np.flatnonzero(run.sites.role == _PARAMETER)
    firsts = dict(zip(*(array.tolist() for array in np.unique(records["site"], return_index=True)), strict=True))
    content: dict[int, list[Hashable]] = defaultdict(list)
    telling: set[int] = set()
    for site in sites.tolist():
        row = firsts.get(site)
        node = int(run.sites.node[site])
        if row is None or run.nodes[node].kind is not NodeKind.MODULE:
            continue
        shape = run.forms[int(records["form"][row])].shape
        content[node].append((str(run.sites.argument[site]), shape, _fingerprint(run, row)))
        if "m2" not in records or records["m2"][row] != 0:
            telling.add(node)
    return {node: tuple(sorted(keys, key=repr)) for node, keys in content.items() if node in telling}


def _fingerprint(run: RankView, row: int) -> Hashable:
    has = int(run.records["has"][row])
    if has & HAS["checksums"]:
        return int(run.records["checksum"][row])
    if has & HAS["statistics"]:
        return tuple(float(run.records[name][row]) for name in _FINGERPRINT)
    return ("unknown", row)
