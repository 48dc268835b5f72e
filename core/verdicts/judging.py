"""From a table of pairs to verdicts: errors, data flow, bounds, decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.verdicts.bounds import local_bounds, widen_by_peers
from msprobe.core.verdicts.decide import decide
from msprobe.core.verdicts.errors import measure_errors, relative
from msprobe.core.verdicts.flow import build_flow
from msprobe.core.verdicts.sources import Judged
from msprobe.core.verdicts.tensors import TensorReader

if TYPE_CHECKING:
    from msprobe.core.merging.across import Hubs
    from msprobe.core.verdicts.constants import Constants
    from msprobe.core.verdicts.table import PairTable


def judge(
    table: PairTable,
    constants: Constants,
    bar: Callable[[Iterable[int]], Iterable[int]],
    *,
    find_hubs: Callable[[PairTable], Hubs | None] = lambda _: None,
) -> Judged:
    """Judges every pair; ``bar`` shows progress over pairs whose tensors are read.

    ``find_hubs`` gives how ranks reach each other; it is asked only where something is wrong at all.
    """
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):  # NaN and Inf are data here
        reader = TensorReader(table)
        errors = measure_errors(table, reader.measure, bar, reader.content_vectors)
        flow = build_flow(table)
        bounds = local_bounds(table, errors, flow, constants)
        decisions = decide(table, errors, bounds, flow, constants)
        hubs = find_hubs(table) if decisions.flagged.any() else None
        if hubs is not None:
            flow = replace(flow, shared=hubs.edges, hubs=hubs.count)
            rounding = np.where(decisions.flagged | decisions.tainted, np.nan, errors.difference)
            bounds = widen_by_peers(table, rounding, flow, bounds, constants)
            decisions = decide(table, errors, bounds, flow, constants)
        return Judged(table, errors, relative(errors, table), bounds, flow, decisions, constants)
