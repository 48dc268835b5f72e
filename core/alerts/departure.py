"""Values unlike their history, at once (spikes and collapses) or slowly."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import numpy as np

from msprobe.core.alerts.findings import Finding
from msprobe.core.sites import Direction, Role

if TYPE_CHECKING:
    from msprobe.core.alerts.view import Mask, StepView

#: By which factor an activation may grow over some hundred steps.
DRIFT: Final = 32.0


class Departure:
    """Root mean square or largest magnitude far from what it was at this site (``core.alerts.history``)."""

    name = "departure"
    summary = "spikes and collapses against the site's own history"

    def check(self, step: StepView) -> Iterable[Finding]:
        """Finds sites whose size departs."""
        past = step.past
        if past is None:
            return
        where = past.departs & ~step.is_role(Role.STATE)
        where &= ~(_is_gradient(step) & (step.rows["micro_step"] <= step.skipped))
        for row in np.flatnonzero(where):
            factor = float(past.factor[row])
            way = f"{factor:,.3g} times larger" if factor > 1 else f"{1 / factor:,.3g} times smaller"
            message = f"{way} than the median of its last steps, {abs(past.score[row]):,.0f} robust deviations"
            yield Finding(self.name, message, int(row), score=abs(float(past.score[row])))


class Drift:
    """An activation that has grown by a large factor, slowly."""

    name = "drift"
    summary = "activations that grow without end"

    def check(self, step: StepView) -> Iterable[Finding]:
        """Finds outputs that have drifted."""
        past = step.past
        if past is None:
            return
        where = step.is_direction(Direction.FORWARD) & step.is_role(Role.OUTPUT, Role.INPUT)
        for row in np.flatnonzero(where & (past.drift > np.log(DRIFT))):
            message = f"has grown {np.exp(past.drift[row]):,.3g} times over the last hundreds of steps"
            yield Finding(self.name, message, int(row), score=float(past.drift[row]))


def _is_gradient(step: StepView) -> Mask:
    return step.is_role(Role.GRADIENT) | step.is_direction(Direction.BACKWARD)
