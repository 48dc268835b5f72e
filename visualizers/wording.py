"""Put names from a run into text: safe to print, and shortened at the end that matters least."""

from __future__ import annotations

import unicodedata

#: Marks what was left out.
ELLIPSIS = "..."

#: Unicode categories that would act on a terminal or a page instead of being seen.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: str) -> str:
    r"""Writes control, direction and unassigned characters as escapes, so that nothing from a run acts as a command.

    >>> printable("a\x1b[31mb\n")
    'a\\x1b[31mb\\n'
    """
    if text.isprintable():
        return text
    return "".join(c.encode("unicode_escape").decode() if unicodedata.category(c) in _UNSEEN else c for c in text)


def node_name(path: str) -> str:
    """Gives the path of a node as shown: the root module, whose path is empty, gets a name."""
    return printable(path) or "(root)"


def width_of(text: str) -> int:
    """Gives how many columns of a terminal a printable text takes (wide East Asian characters take two)."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    combining = sum(unicodedata.combining(c) > 0 for c in text)
    return len(text) + wide - combining


def shorten_head(text: str, width: int) -> str:
    """Cuts from the start: the end of a path tells siblings apart.

    >>> shorten_head("model.layers.17.self_attn.o_proj", 24)
    '...s.17.self_attn.o_proj'
    """
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - len(ELLIPSIS):
        text = text[1:]
    return (ELLIPSIS + text)[-width:] if width > 0 else ""


def shorten_tail(text: str, width: int) -> str:
    """Cuts from the end: prose says the main thing first."""
    if width_of(text) <= width:
        return text
    while text and width_of(text) > width - len(ELLIPSIS):
        text = text[:-1]
    return (text + ELLIPSIS)[:width] if width > 0 else ""


def wrap(text: str, width: int, indent: str = "") -> list[str]:
    """Breaks prose at spaces only; a path longer than the line keeps a line to itself and stays whole."""
    lines: list[str] = []
    line = ""
    for part in text.split():
        longer = f"{line} {part}" if line else part
        if line and width_of(indent) + width_of(longer) > width:
            lines.append(indent + line)
            line = part
        else:
            line = longer
    return [*lines, indent + line] if line or not lines else lines
