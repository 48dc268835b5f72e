"""Makes the plan of each kind of group: which ranks and forms, and what else a plan may depend on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.merging.axes import Member, Nature
from msprobe.core.merging.identity import natures
from msprobe.core.merging.plans import Context, Plan, make_plan
from msprobe.core.placement import Placement, read_layout

if TYPE_CHECKING:
    from msprobe.core.merging.identity import WholeCatalogue
    from msprobe.core.sites import Form

Mesh = Mapping[str, tuple[int, int]]
#: Placements that rules give to the tensors of a site (number) of the whole model.
Rules = Callable[[int], tuple[Placement, ...]]


class Planner:
    """Makes plans; numbers the kinds of sites that are planned alike."""

    def __init__(  # what a plan may depend on
        self,
        catalogue: WholeCatalogue,
        forms: Sequence[Form],
        ranks: Sequence[int],
        meshes: Mapping[int, Mesh],
        rules: Rules | None,
        shapes: Mapping[int, tuple[int, ...]],
    ) -> None:
        self._forms, self._ranks, self._meshes = forms, ranks, meshes
        self._layouts = [read_layout(form.layout) for form in forms]
        self._recorded = frozenset(ranks)
        numbers = {node.path: number for number, node in enumerate(catalogue.nodes)}
        of_sites = natures(catalogue.sites).tolist()
        known: dict[tuple[Any, ...], int] = {}
        kinds = []
        for site, key in enumerate(catalogue.sites):
            present = catalogue.present[numbers[key[0]]]
            kind = (of_sites[site], present, rules(site) if rules else (), shapes.get(site))
            kinds.append(known.setdefault(kind, len(known)))
        self.kinds = np.array(kinds, dtype=np.int64)
        self._known = list(known)

    def make(self, kind: int, ranks: Sequence[int], forms: Sequence[int]) -> Plan:
        """Makes the plan of a group."""
        of_site, present, rules, whole = self._known[kind]
        members = []
        for position, form in zip(ranks, forms, strict=True):
            rank = self._ranks[position]
            members.append(Member(rank, self._meshes[rank], self._forms[form], self._layouts[form], rules))
        return make_plan(members, Context(Nature(of_site), present, self._recorded, self._meshes, whole))
