"""Propose a mapping for two runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msprobe.core.errors import ComparisonError
from msprobe.core.matching.mapping_text import mapping_text
from msprobe.core.matching.pairing import find_pairs
from msprobe.core.matching.proposing import Proposal, join, propose
from msprobe.core.merging.sides import bring_together
from msprobe.core.run.reader import open_run

if TYPE_CHECKING:
    from msprobe.core.matching.mapping import Mapping
    from msprobe.core.run.reader import Run


def propose_mapping(
    candidate: str | Path | Run, reference: str | Path | Run, *, mapping: Mapping | None = None
) -> Proposal:
    """Gives rules that say which module of one run is which of the other; see ``docs/mapping.md``.

    ``mapping`` is what is known already: it is followed, and its pairs are in the result.

    Raises:
        RunError: A run cannot be read.
        MappingError: The given mapping does not fit the runs.
        ComparisonError: The runs have no rank in common.
    """
    opened = [open_run(run) if isinstance(run, str | Path) else run for run in (candidate, reference)]
    sides, _ = bring_together(opened[0], opened[1], (None, None), merge=None)
    ranks = sorted(set(sides[0].ranks) & set(sides[1].ranks))
    if not ranks:
        raise ComparisonError(f"{opened[0].path} and {opened[1].path} have no rank in common.")
    found = []
    for rank in ranks:
        runs = sides[0].rank(rank), sides[1].rank(rank)
        found.append(propose(runs[0].nodes, runs[1].nodes, find_pairs(*runs, mapping)))
    return join(found)


def propose_text(
    candidate: str | Path | Run, reference: str | Path | Run, *, mapping: Mapping | None = None
) -> tuple[Proposal, str]:
    """Gives the proposal and the mapping file that says it; ``mapping`` as in ``propose_mapping``."""
    names = [str(run) if isinstance(run, str | Path) else str(run.path) for run in (candidate, reference)]
    proposal = propose_mapping(candidate, reference, mapping=mapping)
    return proposal, mapping_text(proposal, candidate=names[0], reference=names[1])
