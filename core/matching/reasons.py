"""Why two nodes are a pair, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """How two nodes came to be paired, and how sure that is (0 to 1)."""

    text: str
    confidence: float


BY_NAME = Reason("name", 1.0)
BY_NORMALISED_NAME = Reason("name without wrappers", 0.98)
BY_CONTENT = Reason("equal parameters", 0.9)
BY_RELATIVE_NAME = Reason("name inside paired parents", 0.9)
BY_CHILDREN = Reason("their children are paired", 0.85)
BY_CLASS = Reason("the only ones of their class", 0.6)
BY_STRUCTURE = Reason("class and order inside paired parents", 0.6)


def by_rule(where: str, more: str = "", confidence: float = 1.0) -> Reason:
    """Gives the reason of a pair that a rule named; ``where`` is the rule's file and line, ``more`` its transform."""
    return Reason(f"mapping, {where}" + (f": {more}" if more else ""), confidence)
