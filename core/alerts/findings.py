"""What a rule finds in one step, and the alert that the findings of one cause become."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

#: Rules of one family see the same cause in different ways: one alert of a family is enough for a while.
FAMILIES = {
    "nan": "nonfinite",
    "inf": "nonfinite",
    "departure": "departure",
    "drift": "departure",
    "exploding": "departure",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One site, or one scalar of the step, that a rule objects to."""

    rule: str
    message: str
    #: Position among the rows of the step (``StepView``); -1: it is about a scalar or the whole step.
    row: int = -1
    #: How far beyond the limit, for the order among findings of one place; larger is worse.
    score: float = 0.0
    #: Name of the scalar that it is about, if it is about one.
    scalar: str = ""


@dataclass(frozen=True, slots=True)
class Alert:
    """What is told of one cause: its first place in order of execution."""

    rule: str
    message: str
    step: int
    rank: int
    micro_step: int = 0
    #: Path of the node, direction, role and argument of the first site; empty when it is about the step.
    node: str = ""
    direction: str = ""
    role: str = ""
    argument: str = ""
    #: How many more sites the rules object to in this step, and which rules.
    others: int = 0
    rules: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """Which alerts tell of the same kind of cause."""
        return FAMILIES.get(self.rule, self.rule)

    @property
    def place(self) -> str:
        """Names the site in words."""
        if not self.direction:
            return "the step"
        node = self.node or "the model"
        return f"{node} {self.direction} {self.role} {self.argument}".rstrip()

    def __str__(self) -> str:
        more = f"; {self.others} more sites in this step" if self.others else ""
        micro = f", micro-step {self.micro_step}" if self.micro_step else ""
        return f"step {self.step}{micro}, rank {self.rank}: {self.place}: {self.message} [{self.rule}]{more}"

    def as_details(self) -> dict[str, Any]:
        """Gives the fields as JSON holds them."""
        return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(self).items()}


def family_of(rule: str) -> str:
    """Gives the family of a rule; one that is in none is a family of its own."""
    return FAMILIES.get(rule, rule)
