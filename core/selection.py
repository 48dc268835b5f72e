"""Decides what is kept of the tensors of a node."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msprobe.core.options import RecordOptions
    from msprobe.core.sites import Node

_NOTHING: frozenset[str] = frozenset()


def what_is_kept(node: Node, options: RecordOptions) -> frozenset[str]:
    """Gives what is kept of the tensors of a node, by ``targets``, ``exclude`` and ``what_for``; empty: nothing."""
    names = (node.path, node.class_name)
    if options.targets and not _fits(options.targets, names):
        return _NOTHING
    if _fits(options.exclude, names):
        return _NOTHING
    for pattern, what in options.what_for:
        if _fits((pattern,), names):
            return what
    return options.what


def _fits(patterns: tuple[str, ...], names: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)
