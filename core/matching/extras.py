"""What a run records only because its work is spread over ranks: nothing is missing where the other run has none of it.

Gradients after their reduction over ranks, checksums of gathered parameters, collectives. They are compared where both
runs have them. Where just one does, they have no partner and need none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from msprobe.core.comparison import Finding
from msprobe.core.matching.sites import SitePairs
from msprobe.core.sites import Direction, NodeKind, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from msprobe.core.run.catalogue import SiteTable
    from msprobe.core.sites import Node


class Recorded(Protocol):
    """What a rank has recorded, or all ranks as one."""

    @property
    def nodes(self) -> Sequence[Node]: ...

    @property
    def sites(self) -> SiteTable: ...

    @property
    def records(self) -> Mapping[str, NDArray[Any]]: ...


#: Ends the argument of the checksum of a gathered parameter.
GATHERED: Final = ".gathered"
#: Kinds of what only some layouts have, from 1; 0 is what every run has.
_WORDS: Final = {1: "gradients after their reduction", 2: "checksums of gathered parameters", 3: "collectives"}
_REDUCE = tuple(Direction).index(Direction.REDUCE)
_DERIVED = tuple(Role).index(Role.DERIVED)


def extra_kinds(side: Recorded) -> NDArray[np.int8]:
    """Gives, for each site, which kind of extra it is; 0 for none."""
    sites = side.sites
    kinds = np.zeros(len(sites.node), dtype=np.int8)
    kinds[sites.direction == _REDUCE] = 1
    derived = np.flatnonzero(sites.role == _DERIVED)
    kinds[[site for site in derived.tolist() if sites.argument[site].endswith(GATHERED)]] = 2
    collective = np.array([node.kind is NodeKind.COLLECTIVE for node in side.nodes], dtype=bool)
    if collective.any():
        kinds[collective[sites.node]] = 3
    return kinds


def without_extras(candidate: Recorded, reference: Recorded, sites: SitePairs) -> SitePairs:
    """Takes extras of a kind that only one side has out of the numbering."""
    kinds = [extra_kinds(side) for side in (candidate, reference)]
    numbers = [sites.candidate.copy(), sites.reference.copy()]
    for own, other in ((0, 1), (1, 0)):
        for kind in set(np.unique(kinds[own]).tolist()) - set(np.unique(kinds[other]).tolist()) - {0}:
            numbers[own][kinds[own] == kind] = -1
    return SitePairs(numbers[0], numbers[1], sites.count)


def extra_findings(
    sides: Iterable[Iterable[Recorded]], names: Sequence[str], steps: NDArray[np.int64]
) -> list[Finding]:
    """Says of which side how many records are extras that the other side has none of.

    ``sides`` holds the ranks of each, ``names`` what the sides are called.
    """
    counts = [sum((_count(rank, steps) for rank in ranks), np.zeros(4, dtype=np.int64)) for ranks in sides]
    found = []
    for own, other in ((0, 1), (1, 0)):
        alone = [(kind, int(counts[own][kind])) for kind in _WORDS if counts[own][kind] and not counts[other][kind]]
        if alone:
            told = " and ".join(f"{count:,} {_WORDS[kind]}" for kind, count in alone)
            text = f"The {names[own]} alone has {told}: its ranks share the work so. None of it counts as missing."
            found.append(Finding("spread", text))
    return found


def _count(rank: Recorded, steps: NDArray[np.int64]) -> NDArray[np.int64]:
    records = rank.records
    wanted = records["site"][np.isin(records["step"], steps)]
    return np.bincount(extra_kinds(rank)[wanted], minlength=4).astype(np.int64)
