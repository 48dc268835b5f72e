"""Build HTML and SVG so that text can never become markup.

Elements are made by ``tag`` from a name, attributes and children; text children are escaped, ``Markup`` is not. There
is no other way to get markup from text but ``raw``, which is for the package's own style and script.
"""

from __future__ import annotations

import html
import re
from typing import TypeAlias

from msprobe.visualizers.wording import node_name, printable


class Markup(str):
    """Text that is markup already; made by this module only."""

    __slots__ = ()


Child: TypeAlias = "Markup | str | None"

_VOID = frozenset({"meta", "input", "br", "path", "rect", "circle", "line", "use"})

#: A number that a browser would break behind the hyphen.
_SMALL_NUMBER = re.compile(r"((?<![\w.])\d[\d.]*e-\d+(?!\w))")

#: How many last segments of a path are never dimmed: they tell siblings apart.
_TAIL = 3


def tag(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """Makes an element; ``class_`` is class, other underscores are hyphens, True is a bare attribute, None is none."""
    given = {key: value for key, value in attributes.items() if value is not None and value is not False}
    written = "".join(_attribute(key, value) for key, value in given.items())
    if name in _VOID:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{join(*children)}</{name}>")


def _attribute(key: str, value: str | float) -> str:
    key = key.rstrip("_").replace("_", "-")
    if value is True:
        return f" {key}"
    text = f"{value:g}" if isinstance(value, float) else printable(str(value))
    return f' {key}="{html.escape(text, quote=True)}"'


def join(*children: Child) -> Markup:
    """Puts children one after the other; text is escaped."""
    return Markup("".join(c if isinstance(c, Markup) else html.escape(printable(c)) for c in children if c))


def raw(text: str) -> Markup:
    """Takes text of this package (a style sheet, a script) as it is; never text from a run."""
    return Markup(text)


def prose(text: str) -> Markup:
    """Shows a sentence in which no line ends inside a number such as 1.2e-06."""
    parts = _SMALL_NUMBER.split(text)
    return join(*(tag("span", part, class_="number") if place % 2 else part for place, part in enumerate(parts)))


def path(text: str) -> Markup:
    """Shows a node's path with its head dimmed and a place to break after each segment."""
    parts = node_name(text).split(".")
    head, tail = parts[:-_TAIL], parts[-_TAIL:]
    dimmed = tag("span", _breakable([*head, ""]), class_="head") if head else None
    return tag("span", dimmed, _breakable(tail), class_="path", title=node_name(text))


def _breakable(parts: list[str]) -> Markup:
    return Markup("".join(f"{join(part)}.<wbr/>" for part in parts[:-1]) + join(parts[-1]))
