"""The modules of a model as nodes of the graph, and the plain values that they carry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from msprobe.adapters.pytorch.compiled import is_compiled
from msprobe.adapters.pytorch.structures import plain
from msprobe.adapters.pytorch.wrappers import class_of, unwrapped
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
    settings: Settings = field(default_factory=lambda: Settings())
    #: The plain arguments of its calls when last noted.
    arguments: dict[str, Any] = field(default_factory=dict)
    #: Called with this, the call and its result, where something is derived from results.
    derive: Any = None


def named_modules(root: torch.nn.Module, prefix: str) -> Iterator[tuple[str, torch.nn.Module, bool]]:
    """Gives path, module and whether it lies in a compiled region, parents first; shared modules once for each path.

    ``torch.compile`` wraps a module in one with the child ``_orig_mod``: the two are one node here. Other wrappers
    (``wrappers``) are left out: the module in them has their path.
    """
    yield from _walk(root, prefix, inside=False, above=())


def _walk(
    module: torch.nn.Module, path: str, *, inside: bool, above: tuple[int, ...]
) -> Iterator[tuple[str, torch.nn.Module, bool]]:
    module = unwrapped(module)
    yield path, module, inside
    inner = original(module)
    inside = inside or is_compiled(module)
    if inner is not module:
        module = unwrapped(inner)
        yield path, module, True
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
    module = unwrapped(original(module))
    kind = getattr(module, "cls_to_become", None) or class_of(module)
    parent = path.rpartition(".")[0] if path else None
    return recorder.node(path, NodeKind.MODULE, kind.__name__, parent)


class Settings:
    """A module's own plain values: eps, scale, p, training, padding_idx and the like.

    Asked at every call, so it looks again only when an attribute has come or is not the very object that it was.
    """

    __slots__ = ("_changeable", "_kinds", "_known", "_others", "_size", "_values")

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}
        self._size = -1
        self._values: dict[str, Any] = {}
        #: Attributes that are no settings; only the types are held, for the objects may be large.
        self._others: tuple[str, ...] = ()
        self._kinds: tuple[type, ...] = ()
        self._changeable = False

    def changed(self, module: torch.nn.Module) -> dict[str, Any]:
        """Gives all of them when any has changed since the last call, else nothing."""
        attributes = module.__dict__
        if self._is_as_before(attributes):
            return {}
        found = self._look(attributes)
        if found == self._known:
            return {}
        self._known = found
        return found

    def _is_as_before(self, attributes: dict[str, Any]) -> bool:
        if len(attributes) != self._size or self._changeable:
            return False
        for name, value in self._values.items():
            if attributes.get(name, self) is not value:
                return False
        return not self._others or tuple(type(attributes.get(name)) for name in self._others) == self._kinds

    def _look(self, attributes: dict[str, Any]) -> dict[str, Any]:
        public = {n: v for n, v in attributes.items() if n[0] != "_" and n not in _NOT_SETTINGS}
        self._size = len(attributes)
        self._values = {name: value for name, value in public.items() if value is None or _is_setting(value)}
        self._others = tuple(public.keys() - self._values.keys())
        self._kinds = tuple(type(public[name]) for name in self._others)
        self._changeable = any(isinstance(value, list) for value in public.values())
        return {name: _setting(value) for name, value in self._values.items() if value is not None}


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
