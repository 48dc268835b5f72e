"""Updates that are too large for their parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import numpy as np

from msprobe.core.alerts.findings import Finding
from msprobe.core.alerts.history import LEAST
from msprobe.core.sites import Role

if TYPE_CHECKING:
    from msprobe.core.alerts.view import StepView

#: One step should not move a weight by more than this share of its norm. Usual are 0.0001 to 0.01.
LARGEST: Final = 0.5
#: Parameters of fewer elements are biases and scales, which may start from zero.
FEW: Final = 256


class RatioRule:
    """The norm of an update over that of its parameter is out of range, after the first steps."""

    name = "ratio"
    summary = "an update of more than half of its parameter"

    def check(self, step: StepView) -> Iterable[Finding]:
        """Finds parameters that a step has moved too far."""
        derived = step.is_role(Role.DERIVED) & (step.elements >= FEW) & (step.rows["norm"] > LARGEST)
        if step.past is None or not derived.any():
            return
        derived &= (step.past.count >= LEAST) & step.argument_ends(".ratio")
        for row in np.flatnonzero(derived):
            norm = float(step.rows["norm"][row])
            yield Finding(self.name, f"one step moved it by {norm:.3g} of its norm", int(row), score=norm)
