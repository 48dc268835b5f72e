"""Finds the tensors, and the plain values, inside what a module is called with and gives back.

Paths name places the way people write them: ``0`` is the first positional argument or the only result, ``1.mask`` the
entry ``mask`` of the second, ``attention_mask`` a keyword argument.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import chain
from typing import Any

import torch

#: How deep structures are followed; deeper ones are containers of something else than arguments.
MAX_DEPTH = 6
#: Plain sequences longer than this are data, not arguments: their length alone is noted.
MAX_PLAIN_ITEMS = 16
#: Text longer than this is cut in facts.
MAX_TEXT = 200

Place = tuple[str, Any]
_PLAIN = (type(None), bool, int, float, str)


def call_places(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[list[Place], list[Place]]:
    """Gives path and value of every leaf of a call's arguments: of the tensors, and of the others."""
    tensors: list[Place] = []
    others: list[Place] = []
    for name, value in chain(enumerate(args), kwargs.items()):
        kind = type(value)
        if kind is torch.Tensor:
            tensors.append((str(name), value))
        elif kind in _PLAIN:
            others.append((str(name), value))
        else:
            for place in places(value, str(name)):
                (tensors if isinstance(place[1], torch.Tensor) else others).append(place)
    return tensors, others


def result_tensors(output: Any) -> list[Place]:
    """Gives path and tensor of every tensor of a result; the only one of a bare result is called ``0``."""
    if isinstance(output, torch.Tensor):
        return [("0", output)]
    if not _is_container(output):
        return []
    found = chain.from_iterable(places(value, name, depth=1) for name, value in _children(output))
    return [place for place in found if isinstance(place[1], torch.Tensor)]


def places(value: Any, path: str, depth: int = 0) -> Iterator[Place]:
    """Gives path and value of every leaf below ``value``."""
    if isinstance(value, torch.Tensor) or not _is_container(value):
        yield path, value
        return
    if depth >= MAX_DEPTH:
        return
    if isinstance(value, (list, tuple)) and len(value) > MAX_PLAIN_ITEMS and not _holds_structure(value):
        yield path, f"{type(value).__name__} of {len(value)}"
        return
    for name, child in _children(value):
        yield from places(child, f"{path}.{name}", depth + 1)


def plain(value: Any) -> Any:
    """Gives what a fact can hold of a value: itself, or for dtypes, functions and other objects their name."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else value[:MAX_TEXT] + "..."
    if isinstance(value, (torch.dtype, torch.device, torch.Size, slice)):
        return str(value)
    if callable(value) and hasattr(value, "__name__"):
        return str(value.__name__)
    return type(value).__name__


def _is_container(value: Any) -> bool:
    if isinstance(value, (tuple, list, Mapping)):
        return not isinstance(value, torch.Size)
    return is_dataclass(value) and not isinstance(value, type)


def _children(value: Any) -> Iterator[Place]:
    if isinstance(value, Mapping):
        for key, child in value.items():
            yield str(key), child
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from zip(value._fields, value, strict=False)
    elif isinstance(value, (tuple, list)):
        for index, child in enumerate(value):
            yield str(index), child
    else:
        for field in fields(value):
            yield field.name, getattr(value, field.name, None)


def _holds_structure(value: Sequence[Any]) -> bool:
    return any(isinstance(item, torch.Tensor) or _is_container(item) for item in value)
