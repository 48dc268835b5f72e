"""Paths of modules that go by another name, with all below them."""

from __future__ import annotations

from collections.abc import Mapping


def nearest(path: str, known: Mapping[str, object]) -> str | None:
    """Gives the node itself or its nearest container that is known; None where none is."""
    if not known:
        return None
    module, _, _ = path.partition("/")
    while module not in known:
        if not module:
            return None
        module = module.rpartition(".")[0]
    return module


def moved(path: str, old: str, new: str) -> str:
    """Gives the path of what lies at or below ``old`` once that is called ``new``.

    >>> moved("chunk0.layers.0", "chunk0", ""), moved("layers.0.mlp", "layers.0", "layers.3")
    ('layers.0', 'layers.3.mlp')
    """
    rest = path[len(old) :] if old else path
    if not old and rest and not rest.startswith("/") and new:
        rest = f".{rest}"
    return f"{new}{rest}" if new or not rest.startswith(".") else rest[1:]
