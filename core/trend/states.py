"""What a cell is, besides its number: NaN, infinite, zero, empty and absent are no values of a colour scale."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.records import HAS, Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray


class State(IntEnum):
    """The state of a cell, in order of concern: pooling keeps the highest."""

    #: Nothing was recorded there.
    ABSENT = 0
    #: Recorded, but not measured (dropped, meta, uninitialised, failed).
    UNMEASURED = 1
    #: A tensor without elements: an expert without tokens, an empty micro-batch.
    EMPTY = 2
    #: All elements are zero.
    ZERO = 3
    #: Finite values.
    PRESENT = 4
    #: Holds -Inf and no NaN or +Inf.
    NEG_INF = 5
    #: Holds +Inf and no NaN.
    POS_INF = 6
    #: Holds NaN that came in with an operand, or whose origin is not known.
    NAN = 7
    #: Holds NaN that arose here, from finite operands.
    NAN_MADE = 8


#: States from this one on are non-finite.
NON_FINITE = State.NEG_INF


def record_states(records: Mapping[str, NDArray[Any]], elements: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Gives the state of each record; counts that were not recorded (-1) count as none."""
    states = np.full(len(elements), State.PRESENT, np.uint8)
    zero = records["zero"]
    states[(zero == elements) & (zero > 0)] = State.ZERO
    for name, state in (("neg_inf", State.NEG_INF), ("pos_inf", State.POS_INF), ("nan", State.NAN)):
        states[records[name] > 0] = state
    states[elements == 0] = State.EMPTY
    measured = (records["status"] == Status.MEASURED) & (records["has"] & HAS["statistics"] > 0)
    states[~measured] = State.UNMEASURED
    return states
