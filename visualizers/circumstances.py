"""Choose which differences of the circumstances people are shown; ``summary.json`` and the workbook hold all."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msprobe.visualizers.numerals import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msprobe.core.comparison import ContextDifference

#: Where a launcher puts its processes: another value at every launch, and no other numbers. The number of processes
#: (WORLD_SIZE) is none of these: it explains differences.
_LAUNCHER = re.compile(
    r"environment\.(MASTER_(ADDR|PORT)|TORCHELASTIC_\w+|(LOCAL_|GROUP_|ROLE_)?RANK|LOCAL_WORLD_SIZE)"
)

#: Generators that seldom feed a model and start from the clock unless seeded.
_RANDOM_STATES = frozenset({"python", "numpy"})

#: How many arguments of operators are told: one other setting shows in each operator below it.
_MOST_ARGUMENTS = 8

#: What stands in the summary where one side has no value, and what that means for an argument.
_ABSENT, _NO_PLAIN_ARGUMENT = "(absent)", "(not recorded as a plain argument)"


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The differences that are told, and how many are not."""

    told: tuple[ContextDifference, ...]
    #: How many are left out for they differ in any two launches, are arguments beyond the first, or are too many.
    usual: int
    arguments: int
    others: int

    def left_out(self) -> str:
        """Says what is not told; empty when all is."""
        parts = [
            f"{count(number_of)} more {what}".rstrip()
            for number_of, what in (
                (self.others, ""),
                (self.arguments, "arguments of operators"),
                (self.usual, "that differ in any two launches"),
            )
            if number_of
        ]
        return f"and {', '.join(parts)}, in summary.json" if parts else ""


def circumstances(differences: Sequence[ContextDifference], most: int) -> Circumstances:
    """Picks at most ``most`` differences that may explain something, in their order."""
    telling = [difference for difference in differences if not _is_usual(difference)]
    arguments = [difference for difference in telling if _is_argument_of_operator(difference)]
    surplus = {id(difference) for difference in arguments[_MOST_ARGUMENTS:]}
    kept = [difference for difference in telling if id(difference) not in surplus]
    return Circumstances(tuple(kept[:most]), len(differences) - len(telling), len(surplus), max(0, len(kept) - most))


def shown_value(difference: ContextDifference, value: str) -> str:
    """Words the value of a side. An argument without one was a tensor there, or was not given."""
    return _NO_PLAIN_ARGUMENT if difference.kind == "argument" and value == _ABSENT else value


def _is_usual(difference: ContextDifference) -> bool:
    if difference.kind == "rng":
        return difference.name in _RANDOM_STATES
    return difference.kind == "context" and bool(_LAUNCHER.fullmatch(difference.name))


def _is_argument_of_operator(difference: ContextDifference) -> bool:
    return difference.kind == "argument" and "/" in difference.node
