"""How what goes wrong on one rank reaches the others, where runs are compared rank by rank.

A rank's records hold the data flow within the rank. Between ranks data moves by collectives and from stage to stage,
so what was computed from a site on one rank may also have been computed from that site on its peers. A *hub* stands for
one site of the whole model in one micro-step: its sources on all ranks lead to it, and it to the site on all ranks.
Peers are the ranks that work on the same samples; gradients that are reduced come from all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.grouping import group_numbers
from msprobe.core.merging.axes import Nature, data_axes
from msprobe.core.merging.identity import natures
from msprobe.core.sites import Direction, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.merging.identity import WholeCatalogue
    from msprobe.core.merging.view import MergedRank
    from msprobe.core.verdicts.table import PairTable

_EVERY = -1
_BACKWARD, _GRADIENT = tuple(Direction).index(Direction.BACKWARD), tuple(Role).index(Role.GRADIENT)


@dataclass(frozen=True)
class Hubs:
    """Edges between rows and hubs; hubs are numbered from the number of rows on."""

    edges: NDArray[np.int64]
    count: int


@dataclass(frozen=True)
class _Rows:
    """The rows of a table that are of a known site: row, its site in the whole model, samples, step and micro-step."""

    row: NDArray[np.int64]
    site: NDArray[np.int64]
    samples: NDArray[np.int64]
    step: NDArray[np.int64]
    micro_step: NDArray[np.int64]


def link_ranks(table: PairTable, merged: MergedRank) -> Hubs:
    """Gives the hubs of a table whose rows are of several ranks.

    Args:
        table: Pairs of records, rank by rank.
        merged: The candidate, seen as one: tells which local sites are one site of the whole model.
    """
    catalogue = merged.catalogue
    rows = _rows(table, merged)
    edges = np.concatenate([merged.edges, _reductions(catalogue)])
    nature = natures(catalogue.sites)
    sources = _sources(rows, edges, nature)
    targets = _targets(rows, nature)
    keys = np.concatenate([sources[:, 1:], targets[:, 1:]])
    if not len(sources) or not len(targets):
        return Hubs(np.zeros((0, 2), dtype=np.int64), 0)
    hub = group_numbers(*keys.T) + len(table)
    into = np.stack([sources[:, 0], hub[: len(sources)]], axis=1)
    out = np.stack([hub[len(sources) :], targets[:, 0]], axis=1)
    return Hubs(np.concatenate([into, out]), int(hub.max()) - len(table) + 1)


def _rows(table: PairTable, merged: MergedRank) -> _Rows:
    of_site = np.full(len(table.sites.rank), -1, dtype=np.int64)
    samples = np.zeros(len(table.sites.rank), dtype=np.int64)
    places: dict[tuple[int, ...], int] = {}
    for match in table.matches:
        position = merged.numbers.index(match.rank)
        known = np.flatnonzero(match.sites.candidate >= 0)
        common = match.sites.candidate[known] + table.offsets[match.rank]
        of_site[common] = merged.catalogue.site_numbers[position][known]
        mesh = merged.meshes[match.rank]
        place = tuple(mesh[axis][0] for axis in data_axes(mesh))
        first = table.offsets[match.rank]
        samples[first : first + match.sites.count] = places.setdefault(place, len(places))
    site = of_site[table.site]
    row = np.flatnonzero(site >= 0)
    return _Rows(row, site[row], samples[table.site[row]], table.step[row], table.micro_step[row].astype(np.int64))


def _reductions(catalogue: WholeCatalogue) -> NDArray[np.int64]:
    """Links the gradients of a parameter before the reduction to all that come after it."""
    local: dict[tuple[str, str], int] = {}
    later: list[tuple[tuple[str, str], int]] = []
    for number, (path, direction, role, argument, _) in enumerate(catalogue.sites):
        if role != _GRADIENT:
            continue
        if direction == _BACKWARD:
            local[(path, argument)] = number
        else:
            later.append(((path, argument), number))
    return np.array([(local[key], site) for key, site in later if key in local], dtype=np.int64).reshape(-1, 2)


def _sources(rows: _Rows, edges: NDArray[np.int64], nature: NDArray[np.int64]) -> NDArray[np.int64]:
    """Gives (row, samples, step, micro-step, site) for each row and each site that is computed from its site."""
    order = np.argsort(edges[:, 0], kind="stable")
    begin = np.searchsorted(edges[order, 0], rows.site)
    lengths = np.searchsorted(edges[order, 0], rows.site, side="right") - begin
    index = np.repeat(begin - np.concatenate([[0], np.cumsum(lengths)[:-1]]), lengths) + np.arange(lengths.sum())
    target = edges[order[index], 1]
    at = np.repeat(np.arange(len(rows.row)), lengths)
    reduced = _is_reduced(nature[target])
    lasting = nature[rows.site[at]] == Nature.LASTING
    samples = np.where(reduced, _EVERY, rows.samples[at])
    micro = np.where(reduced | lasting, _EVERY, rows.micro_step[at])
    return np.stack([rows.row[at], samples, rows.step[at], micro, target], axis=1)


def _targets(rows: _Rows, nature: NDArray[np.int64]) -> NDArray[np.int64]:
    """Gives (row, samples, step, micro-step, site) for each row and each hub that may lead to it."""
    reduced = _is_reduced(nature[rows.site])
    every = np.full(len(rows.row), _EVERY, dtype=np.int64)
    samples = np.where(reduced, every, rows.samples)
    exact = np.stack([rows.row, samples, rows.step, np.where(reduced, every, rows.micro_step), rows.site], axis=1)
    of_step = np.stack([rows.row, samples, rows.step, every, rows.site], axis=1)
    return np.concatenate([exact, of_step[~reduced]])


def _is_reduced(nature: NDArray[np.int64]) -> NDArray[np.bool_]:
    return np.isin(nature, (Nature.REDUCED_GRADIENT, Nature.LASTING))
