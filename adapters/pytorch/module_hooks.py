"""The hooks on modules: they belong to the watched module, and copies or pickles of it carry none that do anything.

A copy of a model (a moving average, a target network, a checkpoint of the whole model) takes the tables of hooks along.
A hook of ours turns, when it is copied or pickled, into a callable of the standard library that ignores its arguments,
so that the copy records nothing, and loads where msprobe is not installed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from msprobe.adapters.pytorch.nodes import WatchedModule


class _ModuleHook:
    """Calls a function with the watched module's call, if it is that very module's, and never while compiling."""

    __slots__ = ("_function", "_owner", "_watched")

    def __init__(self, function: Callable[..., None], watched: WatchedModule, module: torch.nn.Module) -> None:
        self._function, self._watched, self._owner = function, watched, id(module)

    def __deepcopy__(self, memo: dict[int, Any]) -> Callable[..., None]:
        return contextlib.nullcontext().__exit__

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")


class BeforeCall(_ModuleHook):
    """A forward pre-hook that sees positional and keyword arguments."""

    __slots__ = ()

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if id(module) == self._owner and not torch.compiler.is_compiling():
            self._function(self._watched, module, args, kwargs)


class AfterCall(_ModuleHook):
    """A forward hook that sees the result."""

    __slots__ = ()

    def __call__(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if id(module) == self._owner and not torch.compiler.is_compiling():
            self._function(self._watched, module, output)
