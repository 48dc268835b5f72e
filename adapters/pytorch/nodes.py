"""The modules of a model as nodes of the graph, and the plain values that they carry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from msprobe.adapters.pytorch.compiled import is_compiled
from msprobe.adapters.pytorch.structures import plain
from msprobe.core.sites import NodeKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from msprobe.core.recorder import Recorder

#: Attributes of a module that are not its settings.
_NOT_SETTINGS = frozenset({"dump_patches", "call_super_init"})
_MAX_ITEMS = 8


@dataclass(eq=False, slots=True)
class WatchedModule:
    """A module of the watched model: its node and what is recorded of it. Holds no reference to the module."""

    path: str
    node: int
    #: Counts the watched modules of a session.
    number: int
    what: frozenset[str]
    #: Runs compiled: what is inside cannot be seen.
    compiled: bool = False
    #: Lies inside a compiled region: never called from Python.
    unseen: bool = False
    settings: dict[str, Any] = field(default_factory=dict)


def named_modules(root: torch.nn.Module, prefix: str) -> Iterator[tuple[str, torch.nn.Module, bool]]:
    """Gives path, module and whether it lies in a compiled region, parents first; shared modules once for each path.

    ``torch.compile`` wraps a module in one with the child ``_orig_mod``: the two are one node here.
    """
    yield from _walk(root, prefix, inside=False, above=())


def _walk(
    module: torch.nn.Module, path: str, *, inside: bool, above: tuple[int, ...]
) -> Iterator[tuple[str, torch.nn.Module, bool]]:
    yield path, module, inside
    inner = original(module)
    inside = inside or is_compiled(module)
    if inner is not module:
        yield path, inner, True
        module = inner
    above = (*above, id(module))
    for name, child in module._modules.items():
        if child is not None and id(child) not in above:
            yield from _walk(child, f"{path}.{name}" if path else name, inside=inside, above=above)


def original(module: torch.nn.Module) -> torch.nn.Module:
    """Gives the module that a compiled one wraps, else the module itself."""
    return module._modules["_orig_mod"] or module if type(module).__name__ == "OptimizedModule" else module


def has_forward(module: torch.nn.Module) -> bool:
    """Tells whether calls of the module can be seen: lists of modules are not called, and scripts take no hooks."""
    return not isinstance(module, torch.jit.ScriptModule) and type(module).forward is not torch.nn.Module.forward


def declare(recorder: Recorder, path: str, module: torch.nn.Module) -> int:
    """Makes the node of a module and gives its number. A lazy module has the class that it will become."""
    module = original(module)
    kind = getattr(module, "cls_to_become", None) or type(module)
    parent = path.rpartition(".")[0] if path else None
    return recorder.node(path, NodeKind.MODULE, kind.__name__, parent)


def settings(module: torch.nn.Module) -> dict[str, Any]:
    """Gives a module's own plain values: eps, scale, p, training, padding_idx and the like."""
    return {
        name: _setting(value)
        for name, value in module.__dict__.items()
        if name[0] != "_" and name not in _NOT_SETTINGS and _is_setting(value)
    }


def _setting(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [plain(item) for item in value]
    return plain(value)


def _is_setting(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return 0 < len(value) <= _MAX_ITEMS and all(isinstance(item, (bool, int, float, str)) for item in value)
    return isinstance(value, (bool, int, float, str, torch.dtype)) or (
        callable(value) and not isinstance(value, torch.nn.Module) and hasattr(value, "__name__")
    )
