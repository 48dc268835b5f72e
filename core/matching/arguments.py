"""Pair arguments that one side passes by position and the other by name, or results that only one side names.

``attn(x)`` and ``attn(hidden_states=x)`` are one call. Only a position pairs with a name, in order, and only where the
shapes are equal and both hold numbers of one kind: two different names are two different things. Except for a
parameter: where all others of a node have their partner and one of equal shape is left on each side (``scale`` and
``weight`` of a norm), these are one, and so are their gradients and states.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.dtypes import is_discrete
from msprobe.core.sites import Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.matching.views import RankView

#: What is seen at an argument: whether it is a position, shape, whether its values are discrete.
_Look = tuple[bool, tuple[int, ...], bool]

_ROLES = tuple(Role)
_OF_PARAMETERS = tuple(_ROLES.index(role) for role in (Role.PARAMETER, Role.GRADIENT, Role.STATE))


def align_arguments(
    sides: tuple[RankView, RankView],
    nodes: list[NDArray[np.int64]],
    places: list[NDArray[np.int64]],
    codes: list[NDArray[np.int64]],
) -> None:
    """Gives arguments of the candidate the code of what they are called in the reference; changes ``codes[0]``.

    Args:
        sides: Both ranks.
        nodes: The common number of each site's node.
        places: A number for direction and role of each site.
        codes: A number for the name of each site's argument.
    """
    looks = [_looks(side) for side in sides]
    seen = [_by_place(side, *columns) for side, *columns in zip(sides, nodes, places, codes, strict=True)]
    renamed: dict[tuple[int, int, int], int] = {}
    for key in seen[0].keys() & seen[1].keys():
        left, right = seen[0][key], seen[1][key]
        if left.keys() == right.keys():
            continue
        only_c = [(code, looks[0].get(site)) for code, site in left.items() if code not in right]
        only_r = [(code, looks[1].get(site)) for code, site in right.items() if code not in left]
        for code, other in _pair(only_c, only_r):
            renamed[(*key, code)] = other
    _align_parameters(sides, nodes, codes, looks)
    if renamed:
        for index, site in enumerate(zip(nodes[0].tolist(), places[0].tolist(), codes[0].tolist(), strict=True)):
            codes[0][index] = renamed.get(site, site[2])


def _align_parameters(
    sides: tuple[RankView, RankView],
    nodes: list[NDArray[np.int64]],
    codes: list[NDArray[np.int64]],
    looks: list[dict[int, _Look]],
) -> None:
    """Gives the one parameter that is left of a node the name of the one that is left on the other side."""
    seen = [_parameters(side, numbers) for side, numbers in zip(sides, nodes, strict=True)]
    one: dict[int, tuple[str, str]] = {}
    for node in seen[0].keys() & seen[1].keys():
        left, right = seen[0][node], seen[1][node]
        only_c, only_r = left.keys() - right.keys(), right.keys() - left.keys()
        if len(only_c) == len(only_r) == 1:
            (name,), (other,) = only_c, only_r
            look, other_look = looks[0].get(left[name]), looks[1].get(right[other])
            if look and other_look and look[1:] == other_look[1:]:
                one[node] = (name, other)
    if not one:
        return
    code_of = dict(zip(sides[1].sites.argument.tolist(), codes[1].tolist(), strict=True))
    for site in np.flatnonzero(np.isin(nodes[0], list(one)) & np.isin(sides[0].sites.role, _OF_PARAMETERS)).tolist():
        name, other = one[int(nodes[0][site])]
        argument = str(sides[0].sites.argument[site])
        if argument == name or argument.startswith(f"{name}."):
            codes[0][site] = code_of.get(other + argument[len(name) :], codes[0][site])


def _parameters(side: RankView, nodes: NDArray[np.int64]) -> dict[int, dict[str, int]]:
    """Gives the parameters of each node by name, each with its site."""
    found: dict[int, dict[str, int]] = defaultdict(dict)
    for site in np.flatnonzero((side.sites.role == _OF_PARAMETERS[0]) & (nodes >= 0)).tolist():
        found[int(nodes[site])].setdefault(str(side.sites.argument[site]), site)
    return found


def _pair(left: list[tuple[int, _Look | None]], right: list[tuple[int, _Look | None]]) -> list[tuple[int, int]]:
    found, start = [], 0
    for code, look in left:
        for index in range(start, len(right)):
            other, other_look = right[index]
            if look and other_look and look[0] != other_look[0] and look[1:] == other_look[1:]:
                found.append((code, other))
                start = index + 1
                break
    return found


def _by_place(
    side: RankView, nodes: NDArray[np.int64], places: NDArray[np.int64], codes: NDArray[np.int64]
) -> dict[tuple[int, int], dict[int, int]]:
    """Gives, for each node, direction and role, the arguments of the first call in order, each with a site."""
    found: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    first = side.sites.call == 0
    for site in np.flatnonzero(first & (nodes >= 0)).tolist():
        found[int(nodes[site]), int(places[site])].setdefault(int(codes[site]), site)
    return found


def _looks(side: RankView) -> dict[int, _Look]:
    sites, rows = np.unique(side.records["site"], return_index=True)
    found = {}
    for site, form in zip(sites.tolist(), side.records["form"][rows].tolist(), strict=True):
        name = str(side.sites.argument[site])
        of = side.forms[form]
        found[site] = (name.partition(".")[0].isdigit(), of.shape, is_discrete(of.dtype))
    return found
