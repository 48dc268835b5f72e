"""One order of execution over all ranks: stages forward one after the other, and back in backward."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.sites import Direction

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.merging.grouping import Members
    from msprobe.core.merging.identity import WholeCatalogue

_PHASES = {Direction.FORWARD: 0, Direction.BACKWARD: 1, Direction.RECOMPUTE: 1}
_LAST = 2


def execution_order(members: Members, catalogue: WholeCatalogue, seq: NDArray[np.int64]) -> NDArray[np.int64]:
    """Gives the wholes in their order of execution.

    Args:
        members: The grouped records.
        catalogue: The whole model's sites with their stages.
        seq: The number, on its rank, of each whole's first record.
    """
    direction = np.array([key[1] for key in catalogue.sites], dtype=np.int64)[members.site]
    phase = np.array([_PHASES.get(d, _LAST) for d in Direction], dtype=np.int64)[direction]
    stage = catalogue.stage[members.site]
    if not len(stage) or stage.max() == stage.min():
        return np.lexsort((seq, members.step))
    along = np.where(phase == 1, -stage, stage)
    micro = np.where(phase == _LAST, 0, members.micro_step)
    updates = phase == _LAST
    return np.lexsort((seq, along, phase, micro, updates, members.step))
