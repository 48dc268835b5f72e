"""NaN and infinite values that matter.

Infinite values may be written on purpose (a mask before a softmax), and gradients overflow under a gradient scaler,
which then leaves the step out: neither is an alert. What matters is a non-finite gradient that the optimizer would
consume, parameter, optimizer state or loss; or a NaN or Inf at a site that never held one. The alert is about the first
site in order of execution, for that is nearest to the cause.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from msprobe.core.alerts.findings import Finding
from msprobe.core.sites import Direction, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.alerts.view import Mask, StepView

#: After so many observations without one, a NaN or Inf at a site is new.
SEEN_CLEAN: Final = 8
#: A site at which at least this share of observations held one writes it on purpose, or is past help.
HABIT: Final = 0.5
#: What a loss is called among the scalars.
LOSS: Final = "loss"


class NanRule:
    """NaN that reaches gradient, parameter or loss, or that is new where it stands."""

    name = "nan"
    summary = "NaN"

    def check(self, step: StepView) -> Iterable[Finding]:
        """Finds sites with NaN."""
        return _findings(step, self.name, step.rows["nan"], step.past.nans if step.past else None, "NaN")


class InfRule:
    """Inf that reaches gradient, parameter or loss, or that is new where it stands."""

    name = "inf"
    summary = "infinite values"

    def check(self, step: StepView) -> Iterable[Finding]:
        """Finds sites with Inf."""
        count = step.rows["pos_inf"] + step.rows["neg_inf"]
        return _findings(step, self.name, count, step.past.infs if step.past else None, "Inf")


def _findings(step: StepView, rule: str, count: NDArray[Any], before: Any, word: str) -> Iterable[Finding]:
    gradient = step.is_role(Role.GRADIENT) | step.is_direction(Direction.BACKWARD)
    skipped = gradient & (step.rows["micro_step"] <= step.skipped)
    holds = (count > 0) & ~skipped & ~step.is_role(Role.DERIVED)
    seen = step.past.count if step.past is not None else np.zeros(len(step), np.int64)
    past = before if before is not None else np.zeros(len(step), np.int64)
    habit = (seen > 0) & (past >= HABIT * seen)
    new = holds & (seen >= SEEN_CLEAN) & (past == 0)
    harmful = _is_harmful(step, holds)
    if rule == "inf":  # a mask of the first steps, before any habit can be known
        harmful = harmful and not np.any((step.rows["nan"] > 0) & ~skipped)
        holds &= ~step.is_direction(Direction.FORWARD) | (step.rows["pos_inf"] > 0) | step.is_role(Role.PARAMETER)
    for row in np.flatnonzero((holds & ~habit) if harmful else new):
        share = f"{count[row]:,} of {step.elements[row]:,} elements are {word}"
        yield Finding(rule, share, int(row), score=float(count[row]))
    yield from _of_loss(step, rule, word)


def _is_harmful(step: StepView, holds: Mask) -> bool:
    lasting = step.is_role(Role.GRADIENT, Role.PARAMETER, Role.STATE)
    loss = step.scalars.get(LOSS, 0.0)
    return bool(np.any(holds & lasting)) or not np.isfinite(loss)


def _of_loss(step: StepView, rule: str, word: str) -> Iterable[Finding]:
    loss = step.scalars.get(LOSS, 0.0)
    if step.skipped < 0 and ((rule == "nan" and np.isnan(loss)) or (rule == "inf" and np.isinf(loss))):
        yield Finding(rule, f"the loss is {word}", scalar=LOSS)
