"""Bring the two sides of a comparison to one mesh: as they are where they agree, else each as one whole rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from msprobe.core.comparison import Finding
from msprobe.core.errors import LayoutError
from msprobe.core.matching.rows import match_rows
from msprobe.core.merging.across import Hubs, link_ranks
from msprobe.core.merging.gathered import check_gathered
from msprobe.core.merging.parallel import Parallel, is_alone, meshes_of
from msprobe.core.merging.reductions import check_reductions
from msprobe.core.merging.replica_findings import Bar, replica_findings
from msprobe.core.merging.replicas import pairs_of, show_worst
from msprobe.core.merging.run import MergedRun
from msprobe.core.merging.section import read_section
from msprobe.core.merging.view import MergedRank

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.matching.sites import SitePairs
    from msprobe.core.merging.planning import Mesh
    from msprobe.core.merging.rules import LayoutRule
    from msprobe.core.run.reader import RankRun, Run
    from msprobe.core.verdicts.constants import Constants
    from msprobe.core.verdicts.table import PairTable

AnyRun: TypeAlias = "Run | MergedRun"
AnyRank: TypeAlias = "RankRun | MergedRank"
#: What the user says of the layout of candidate and reference.
Sides: TypeAlias = "tuple[Parallel | None, Parallel | None]"

SIDES = ("candidate", "reference")


def bring_together(
    candidate: Run, reference: Run, parallel: Sides, *, merge: bool | None
) -> tuple[tuple[AnyRun, AnyRun], tuple[Finding, ...]]:
    """Merges both sides where their meshes differ.

    Args:
        candidate: The run in doubt.
        reference: The run that is trusted.
        parallel: What the user says of each side's layout.
        merge: True: always; False: never; None: where the sides spread the work over ranks in different ways.

    Returns:
        Both sides, and what to say about it.

    Raises:
        LayoutError: Merging was asked for, and a side's mesh is not known.
    """
    sides = (candidate, reference)
    if merge is False:
        return sides, ()
    meshes = [_mesh(run, given, must=bool(merge)) for run, given in zip(sides, parallel, strict=True)]
    alone = [is_alone(run) for run in sides]
    if not merge:
        if all(alone) or _on_one_mesh(sides, meshes):
            return sides, ()
        unknown = [run for run, mesh, single in zip(sides, meshes, alone, strict=True) if mesh is None and not single]
        if unknown:
            hint = f"{unknown[0].path} has {len(unknown[0].ranks)} ranks, and nothing tells how the work was spread."
            return sides, (Finding("layout", f"{hint} {_HOW.format(n=len(unknown[0].ranks))}"),)
    first, second = (
        run if single else MergedRun(run, given) for run, given, single in zip(sides, parallel, alone, strict=True)
    )
    return (first, second), (_told(SIDES[0], first), _told(SIDES[1], second))


def _on_one_mesh(sides: tuple[Run, Run], meshes: Sequence[dict[int, Mesh] | None]) -> bool:
    """Tells whether the common ranks of two runs do the same part of the same work; one side may lack some ranks."""
    common = sorted(set(sides[0].ranks) & set(sides[1].ranks))
    if not common or len({run.rank(common[0]).info.world_size for run in sides}) > 1:
        return False
    first, second = meshes
    if first is None or second is None:
        return first is second and sides[0].ranks == sides[1].ranks
    return all(first[rank] == second[rank] for rank in common)


def told_layouts(
    flags: Sides, mapping: object, rules: Sequence[LayoutRule], *, swap: bool
) -> tuple[Parallel, Parallel]:
    """Gives all that is said of both sides' layouts: flags go first, then the mapping file, then plugins.

    A ``mapping`` that is no file says nothing of layouts.

    Raises:
        MappingError: The mapping file's section is wrong.
    """
    section = read_section(mapping, swap=swap) if isinstance(mapping, str | Path) else (Parallel(), Parallel())
    first, second = (
        replace(flag or of_file, rules=of_file.rules).with_rules(rules)
        for flag, of_file in zip(flags, section, strict=True)
    )
    return first, second


def like(run: Run, sides: tuple[AnyRun, AnyRun], parallel: Parallel | None) -> AnyRun:
    """Gives a further run as one whole where one of the compared sides is."""
    merged = any(isinstance(side, MergedRun) for side in sides)
    return MergedRun(run, parallel) if merged and not is_alone(run) else run


def place_of(rank: AnyRank) -> str:
    """Words where a rank stands on its mesh: ``dp 1, tp 0``."""
    return ", ".join(f"{axis} {place[0]}" for axis, place in rank.info.mesh.items() if place[1] > 1)


def hubs_of(run: AnyRun, table: PairTable) -> Hubs | None:
    """Gives how ranks that are compared one by one reach each other; None where there is one, or all are one."""
    if isinstance(run, MergedRun) or len(table.matches) < 2:
        return None
    return link_ranks(table, as_merged(run).merged)


def as_merged(run: Run) -> MergedRun:
    """Sees a run as one; ranks whose place is not known all work on the same samples, as far as it can be told."""
    meshes = _mesh(run, None, must=False) or {rank: {} for rank in run.ranks}
    return MergedRun(run, meshes=meshes)


def check_ranks(name: str, run: AnyRun, constants: Constants, bar: Bar) -> list[Finding]:
    """Says where ranks of a run that must hold the same do not, and what reductions did beside their duty.

    Says nothing where the mesh is not known.
    """
    if not isinstance(run, MergedRun):
        if len(run.ranks) < 2 or _mesh(run, None, must=False) is None:
            return []
        run = MergedRun(run)
    merged = run.merged
    found = [*replica_findings(name, merged, constants, bar), *check_gathered(name, merged)]
    return [*found, *check_reductions(name, merged)]


_HOW = "To compare it as a whole, say so: --dp {n} or --tp {n} or what it was, or mesh='dp={n}' when recording."


def _mesh(run: Run, parallel: Parallel | None, *, must: bool) -> dict[int, Mesh] | None:
    try:
        return meshes_of(run, parallel)
    except LayoutError:
        if must or (parallel is not None and parallel.sizes):
            raise
        return None


def _told(name: str, run: AnyRun) -> Finding:
    if not isinstance(run, MergedRun):
        return Finding("merged", f"The {name} is one rank.")
    mesh = next(iter(run.meshes.values()))
    axes = " x ".join(f"{axis} {size}" for axis, (_, size) in mesh.items()) or "unnamed"
    return Finding("merged", f"The {name} is {len(run.source.ranks)} ranks ({axes}) seen as one whole model.")


def settle(candidate: AnyRank, reference: AnyRank, sites: SitePairs, steps: NDArray[np.int64]) -> None:
    """Settles, in merged sides, what needs the other side: cuts that shapes tell, and which replica to show."""
    if isinstance(candidate, MergedRank) or isinstance(reference, MergedRank):
        _settle_by_shape(candidate, reference, sites, steps)
    if isinstance(candidate, MergedRank) and len(candidate.differing):
        own, others = pairs_of(match_rows(candidate, reference, sites, steps))
        show_worst(candidate, own, reference, others)


def _settle_by_shape(candidate: AnyRank, reference: AnyRank, sites: SitePairs, steps: NDArray[np.int64]) -> None:
    if _most_micro_steps(candidate, steps) != _most_micro_steps(reference, steps):
        return  # a batch that is cut otherwise has other shapes for that reason alone
    pairs = (
        (candidate, sites.candidate, reference, sites.reference),
        (reference, sites.reference, candidate, sites.candidate),
    )
    for own, numbers, other, elsewhere in pairs:
        if not isinstance(own, MergedRank):
            continue
        here, there = _first_forms(own), _first_forms(other)
        by_number = {int(n): there[site] for site, n in enumerate(elsewhere.tolist()) if n >= 0 and site in there}
        shapes = {}
        for site, (shape, known) in here.items():
            partner = by_number.get(int(numbers[site]))
            if partner is not None and partner[1] and (not known or shape != partner[0]):
                shapes[site] = partner[0]
        if shapes:
            own.reshape(shapes)


def _first_forms(rank: AnyRank) -> dict[int, tuple[tuple[int, ...], bool]]:
    """Gives, for each site with records, the shape of its first record, and whether its values are known."""
    site, first = np.unique(rank.records["site"], return_index=True)
    forms = [rank.forms[form] for form in rank.records["form"][first].tolist()]
    return {s: (form.shape, form.kind == "dense") for s, form in zip(site.tolist(), forms, strict=True)}


def _most_micro_steps(rank: AnyRank, steps: NDArray[np.int64]) -> int:
    micro = rank.records["micro_step"][np.isin(rank.records["step"], steps)]
    return int(micro.max(initial=0))
