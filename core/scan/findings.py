"""What a scan says: findings in order of weight, notes, one plain sentence, an exit code."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Final

#: Kinds of finding, gravest first: of two findings at one step the graver one leads.
KINDS: Final = (
    "non-finite",
    "skipped",
    "spike",
    "replica",
    "zero_grad",
    "frozen",
    "dead expert",
    "no gradient",
    "loss",
)
NOTHING, FOUND, TOO_LITTLE = 0, 1, 3


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong: one sentence, where it is, and what shows it.

    ``rank``, ``step`` and ``micro_step`` are -1 where it is about all of them. ``evidence`` are further sentences in
    the order in which they follow from each other.
    """

    kind: str
    sentence: str
    step: int = -1
    rank: int = -1
    micro_step: int = -1
    node: str = ""
    site: str = ""
    evidence: tuple[str, ...] = ()
    #: How far out it is, to order findings of one kind; 0 where there is no measure.
    score: float = 0.0


@dataclass(frozen=True, slots=True)
class Scan:
    """The result. ``sentence`` comes first; ``notes`` are no faults (skips of a gradient scaler, restarts, gaps)."""

    sentence: str
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    exit_code: int
    #: What was looked at: records, ranks, steps, sites.
    recorded: dict[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Gives everything as JSON's types."""
        return asdict(self)


def ordered(findings: list[Finding]) -> tuple[Finding, ...]:
    """Gives the findings by kind, then by when and how much."""
    return tuple(sorted(findings, key=lambda f: (KINDS.index(f.kind), f.step, -abs(f.score))))


def spans(numbers: list[int], noun: str) -> str:
    """Writes numbers as ranges: "ranks 0-3, 6"; many as their count.

    >>> spans([0, 1, 2, 7], "rank")
    'ranks 0-2, 7'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    shown = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs[:4]) + (", ..." if len(runs) > 4 else "")
    return f"{noun}{'s' if len(set(numbers)) != 1 else ''} {shown}"
