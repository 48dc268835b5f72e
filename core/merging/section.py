"""Reads the ``parallel:`` section of a mapping file: meshes of both sides, and rules by class.

Every mistake is named with file and line, and what would be right.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msprobe.core.documents import Document, read_document
from msprobe.core.errors import ConfigError, LayoutError, MappingError
from msprobe.core.merging.parallel import VIRTUAL, Parallel, parse_order
from msprobe.core.merging.rules import INPUTS, OUTPUTS, PARAMETERS, LayoutRule
from msprobe.core.placement import AXES
from msprobe.core.suggestions import unknown

SECTION = "parallel"
_SIDES = ("candidate", "reference")
_RULE_KEYS = ("class", OUTPUTS, INPUTS, PARAMETERS)

Keys = tuple["str | int", ...]


def read_section(path: str | Path, *, swap: bool = False) -> tuple[Parallel, Parallel]:
    """Gives what a mapping file says of the layout of candidate and reference; ``swap`` exchanges them.

    Raises:
        MappingError: The section is not well formed.
    """
    try:
        document = read_document(path)
    except ConfigError as error:
        raise MappingError(str(error)) from None
    content = document.content.get(SECTION, {}) if isinstance(document.content, dict) else {}
    if not isinstance(content, dict):
        raise _wrong(document, (SECTION,), "the section holds 'candidate', 'reference' and 'layers'.")
    _check_keys(document, content, (*_SIDES, "layers"), (SECTION,))
    layers = content.get("layers", [])
    if not isinstance(layers, list):
        raise _wrong(document, (SECTION, "layers"), "'layers' is a list of rules, each with 'class'.")
    rules = tuple(_rule(document, item, (SECTION, "layers", index)) for index, item in enumerate(layers))
    sides = [_side(document, content.get(side, {}), (SECTION, side)).with_rules(rules) for side in _SIDES]
    return (sides[1], sides[0]) if swap else (sides[0], sides[1])


def _side(document: Document, table: Any, keys: Keys) -> Parallel:
    if not isinstance(table, dict):
        raise _wrong(document, keys, "the mesh of a side is a table such as {tp: 2, dp: 4, order: tp-dp}.")
    _check_keys(document, table, (*AXES, VIRTUAL, "order"), keys)
    sizes = {axis: size for axis, size in table.items() if axis != "order"}
    for axis, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise _wrong(document, (*keys, axis), f"the size of axis {axis} is a number of ranks, not {size!r}.")
    try:
        virtual = sizes.pop(VIRTUAL, 1)
        return Parallel(sizes, parse_order(str(table.get("order", ""))), virtual=virtual)
    except LayoutError as error:
        raise _wrong(document, (*keys, "order"), str(error)) from None


def _rule(document: Document, item: Any, keys: Keys) -> LayoutRule:
    if not isinstance(item, dict) or not isinstance(item.get("class"), str):
        raise _wrong(document, keys, "a rule names a 'class' and says how its outputs, inputs or parameters are cut.")
    _check_keys(document, item, _RULE_KEYS, keys)
    try:
        told = {name: item[name] for name in (OUTPUTS, INPUTS, PARAMETERS) if name in item}
        return LayoutRule.of(item["class"], **told)
    except (LayoutError, AttributeError) as error:
        raise _wrong(document, keys, str(error)) from None


def _check_keys(document: Document, table: dict[Any, Any], known: tuple[str, ...], keys: Keys) -> None:
    for key in table:
        if key not in known:
            raise _wrong(document, (*keys, key), unknown("key", str(key), known))


def _wrong(document: Document, keys: Keys, text: str) -> MappingError:
    return MappingError(f"{document.where(*keys)}: {text}")
