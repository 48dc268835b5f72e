"""Answers an unknown name with the names it may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: How alike two names must be (difflib ratio): finds one wrong or swapped letter in short names, ignores strangers.
_LIKENESS = 0.6


def closest(name: str, known: Iterable[str]) -> str:
    """Gives the known name that is most like ``name``, or "" when none is.

    >>> closest("statistic", ["sketch", "statistics"])
    'statistics'
    """
    folded = {k.lower(): k for k in known}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=_LIKENESS)
    return folded[near[0]] if near else ""


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """Words the message about an unknown name: the name, the nearest known one, and all of them.

    >>> unknown("level", "modul", ["module", "op"])
    "unknown level 'modul'. Did you mean 'module'? Known: module, op."
    """
    names = list(known)
    near = closest(name, names)
    hint = f" Did you mean {near!r}?" if near else ""
    return f"unknown {what} {name!r}.{hint} Known: {', '.join(names)}."
