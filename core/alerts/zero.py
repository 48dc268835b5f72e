"""Tensors that have become all zero or all the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import numpy as np

from msprobe.core.alerts.findings import Finding
from msprobe.core.alerts.history import LEAST
from msprobe.core.sites import Role

if TYPE_CHECKING:
    from msprobe.core.alerts.view import StepView

#: Elements from which on a constant tensor is no accident.
FEW: Final = 8


class ZeroRule:
    """All elements zero, or all equal, where they never were.

    A learning rate of zero makes updates zero: that is none.
    """

    name = "zero"
    summary = "all zero or constant, where it never was"

    def check(self, step: StepView) -> Iterable[Finding]:
        """Finds tensors that have just become zero or constant."""
        past, rows = step.past, step.rows
        if past is None:
            return
        finite = (rows["nan"] + rows["pos_inf"] + rows["neg_inf"] == 0) & (step.elements >= FEW)
        idle = max((abs(v) for n, v in step.scalars.items() if n.partition(".")[0] == "lr"), default=1.0) == 0
        usual = finite & (past.count >= LEAST) & ~(idle & step.is_role(Role.DERIVED))
        zero = usual & (rows["norm"] == 0) & (past.zeros == 0)
        same = usual & (rows["norm"] > 0) & (rows["min"] == rows["max"]) & (past.constants == 0)
        if zero.any() or same.any():
            told = ~step.is_role(Role.DERIVED) | step.argument_ends(".update")
            zero, same = zero & told, same & told
        for row in np.flatnonzero(zero):
            yield Finding(self.name, f"all {step.elements[row]:,} elements are zero, for the first time", int(row))
        for row in np.flatnonzero(same):
            message = f"all {step.elements[row]:,} elements are {rows['min'][row]:.3g}, for the first time"
            yield Finding(self.name, message, int(row))
