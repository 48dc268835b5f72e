"""The gradient as a whole: it explodes, vanishes, or the loss leaps."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import numpy as np

from msprobe.core.alerts.findings import Finding
from msprobe.core.alerts.history import LEAST, WINDOW
from msprobe.core.robust import THRESHOLD, normal_of

if TYPE_CHECKING:
    from msprobe.core.alerts.view import StepView

#: Names of the whole gradient's norm, the first that a step has counts: before clipping is better than after.
GRADIENT: Final = ("grad_norm", "grad_norm_recomputed", "grad_norm_local", "grad_norm_recomputed_local")
#: Steps in a row that must be large or small, and by which factor against the median before them.
LASTING: Final = 4
EXPLODES: Final = 8.0
VANISHES: Final = 100.0
#: The same of one step, and of a loss.
SPIKE: Final = 30.0
LOSS_LEAP: Final = 2.0


class Exploding:
    """The norm of the whole gradient, and the loss, against their own history."""

    name = "exploding"
    summary = "gradient norm that explodes or vanishes, loss that leaps"

    def __init__(self) -> None:
        self._norms: deque[float] = deque(maxlen=WINDOW)
        self._losses: deque[float] = deque(maxlen=WINDOW)

    def check(self, step: StepView) -> Iterable[Finding]:
        """Finds what is wrong with the gradient norm and the loss of this step."""
        norm = next((step.scalars[name] for name in GRADIENT if name in step.scalars), None)
        if norm is not None and np.isfinite(norm) and step.skipped < 0:
            yield from self._of_norm(norm)
            self._norms.append(norm)
        loss = step.scalars.get("loss")
        if loss is not None and np.isfinite(loss):
            yield from self._of_loss(loss)
            self._losses.append(loss)

    def _of_norm(self, norm: float) -> Iterable[Finding]:
        before = [n for n in list(self._norms)[: 1 - LASTING or None] if n > 0]
        if len(before) < LEAST:
            return
        usual = float(np.median(before))
        recent = [*list(self._norms)[1 - LASTING :], norm]
        if min(recent) > EXPLODES * usual and min(recent) > 2 * max(before):
            yield Finding(self.name, f"the gradient norm is {norm / usual:,.3g} times its median, and stays so")
        elif norm > SPIKE * usual and norm > 4 * max(self._norms):
            yield Finding(self.name, f"the gradient norm is {norm / usual:,.3g} times its median")
        elif max(recent) * VANISHES < usual and max(recent) * 4 < min(before):
            yield Finding(self.name, f"the gradient norm is {usual / max(norm, 1e-300):,.3g} times smaller than usual")

    def _of_loss(self, loss: float) -> Iterable[Finding]:
        if len(self._losses) < LEAST:
            return
        history = np.array(self._losses)
        normal = normal_of(history)
        leap = loss - float(normal.centre)
        furthest = float(np.max(np.abs(history - normal.centre)))
        if float(normal.score(loss)) > THRESHOLD and leap > LOSS_LEAP * max(furthest, abs(float(normal.centre))):
            yield Finding(
                self.name, f"the loss leaps from about {float(normal.centre):.4g} to {loss:.4g}", scalar="loss"
            )
