"""Makes one alert of the findings of a step, and keeps quiet about a cause that was told already."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from msprobe.core.alerts.findings import Alert, Finding, family_of
from msprobe.core.alerts.view import DIRECTIONS, ROLES, StepView

#: After the last finding of a family, so many steps without one before it is told again.
QUIET_STEPS: Final = 32
#: While findings of this family go on, all others are their consequences.
_POISON: Final = "nonfinite"


class Grouping:
    """Remembers what was told. Findings of one step have one cause: the first site in order of execution."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        #: Findings by family that were not told, and the last step that had one.
        self.untold: Counter[str] = Counter()
        self._untold_until: dict[str, int] = {}

    def alert(self, step: StepView, findings: Sequence[Finding]) -> Alert | None:
        """Gives the alert of a step; None when there is nothing, or nothing new."""
        poisoned = not self._is_news(_POISON, step.step)
        fresh = [f for f in findings if not poisoned and self._is_news(family_of(f.rule), step.step)]
        for family in {family_of(f.rule) for f in findings}:
            self._last[family] = step.step
        told = {family_of(f.rule) for f in fresh}
        for finding in findings:
            family = family_of(finding.rule)
            if family not in told:
                self.untold[family] += 1
                self._untold_until[family] = step.step
        if not fresh:
            return None
        first = min(fresh, key=lambda f: _order(step, f))
        return _alert(step, first, findings)

    def closing(self) -> list[str]:
        """Says what was not told."""
        return [
            f"{count:,} more findings of this kind ({family}) until step {self._untold_until[family]}"
            for family, count in self.untold.items()
        ]

    def _is_news(self, family: str, step: int) -> bool:
        last = self._last.get(family)
        return last is None or step - last > QUIET_STEPS or step < last


def _order(step: StepView, finding: Finding) -> tuple[float, float]:
    """Orders by execution; among findings of one site the most telling first; the step as a whole last."""
    seq = float(step.rows["seq"][finding.row]) if finding.row >= 0 else float("inf")
    return seq, -finding.score


def _alert(step: StepView, first: Finding, findings: Sequence[Finding]) -> Alert:
    rules = tuple(dict.fromkeys(f.rule for f in findings))
    others = len({f.row for f in findings if f.row >= 0} - {first.row})
    if first.row < 0:
        at = step.scalar_steps.get(first.scalar, step.step)
        return Alert(first.rule, first.message, at, step.rank, others=others, rules=rules)
    site = int(step.rows["site"][first.row])
    return Alert(
        first.rule,
        first.message,
        step.step,
        step.rank,
        int(step.rows["micro_step"][first.row]),
        step.catalogue.path(site),
        DIRECTIONS[int(step.direction[first.row])].value,
        ROLES[int(step.role[first.row])].value,
        step.catalogue.argument(site),
        others,
        rules,
    )
