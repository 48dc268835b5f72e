"""The sign of each verdict: a glyph that reads without colour, a colour that repeats it, and an order of severity."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True)
class Mark:
    """How one verdict looks: in Unicode, in ASCII, as an ANSI colour, and what it tells the reader to do."""

    verdict: str
    glyph: str
    ascii: str
    colour: str
    meaning: str


#: The worst first. Blue agrees, yellow to red differs, grey is not judged: the axis survives colour blindness.
MARKS: tuple[Mark, ...] = (
    Mark("introduced", "\N{BLACK DIAMOND}", "#", "1;31", "an error is made here: look here"),
    Mark("suspect", "\N{BLACK UP-POINTING TRIANGLE}", "^", "33", "inputs differ, and the output differs by more"),
    Mark("inherited", "\N{DOWNWARDS ARROW}", "v", "2;33", "explained by what came in: needs no look"),
    Mark("normal", "\N{WHITE CIRCLE}", "o", "34", "rounding"),
    Mark("equal", "=", "=", "34", "the same bits"),
    Mark("inconclusive", "?", "?", "2", "could not be judged"),
    Mark("unmatched", "\N{WHITE SQUARE}", ".", "2", "has no partner in the other run"),
)

MARK_OF: dict[str, Mark] = {mark.verdict: mark for mark in MARKS}

#: The verdict on a run wears the mark of the worst verdict that it stands for.
RUN_MARK_OF: dict[str, Mark] = {
    "clean": MARK_OF["normal"],
    "inherited only": MARK_OF["inherited"],
    "suspect": MARK_OF["suspect"],
    "introduced": MARK_OF["introduced"],
    "inconclusive": MARK_OF["inconclusive"],
}

SEVERITY: dict[str, int] = {mark.verdict: rank for rank, mark in enumerate(MARKS)}


def word(value: object) -> str:
    """Gives the text of a verdict, direction or role, be it an enum's member or text already."""
    return str(value.value) if isinstance(value, Enum) else str(value)
