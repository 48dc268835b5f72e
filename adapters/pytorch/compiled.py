"""Compiled and fused modules: what hooks cannot see, and what hooks would change.

A compiled module is recorded at its boundary. Nothing inside is hooked: hooks added after the first compiled call never
fire, and hooks that are there before it would be traced into the compiled code.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from msprobe.adapters.pytorch.nodes import WatchedModule


class CompiledCall:
    """Stands around the compiled call of a module (``module.compile()``), and can be removed like a hook."""

    def __init__(
        self,
        module: torch.nn.Module,
        watched: WatchedModule,
        before: Callable[..., None],
        after: Callable[..., None],
    ) -> None:
        self._module = module
        compiled: Any = module._compiled_call_impl
        self._compiled = compiled

        def call(*args: Any, **kwargs: Any) -> Any:
            before(watched, module, args, kwargs)
            output = None
            try:
                output = compiled(*args, **kwargs)
            finally:
                after(watched, module, output)
            return output

        self._wrapper = call
        module._compiled_call_impl = call

    def remove(self) -> None:
        """Puts the compiled call back, unless somebody replaced it since."""
        if self._module._compiled_call_impl is self._wrapper:
            self._module._compiled_call_impl = self._compiled


def is_compiled(module: torch.nn.Module) -> bool:
    """Tells whether calls of the module run compiled code or a script."""
    return (
        type(module).__name__ == "OptimizedModule"
        or module.__dict__.get("_compiled_call_impl") is not None
        or isinstance(module, torch.jit.ScriptModule)
        or _is_compiled_function(module.forward)
    )


def has_compiled(roots: list[torch.nn.Module]) -> bool:
    """Tells whether any module runs compiled, or calls a compiled function as far as its attributes tell."""
    modules = [module for root in roots for module in root.modules()]
    return any(is_compiled(module) or _holds_compiled_function(vars(module)) for module in modules) or any(
        _holds_compiled_function(names) for names in _namespaces({type(module) for module in modules})
    )


def _namespaces(classes: set[type]) -> Iterator[Mapping[str, Any]]:
    """Gives the names that the methods of the classes can call: class attributes and globals of their files."""
    files = set()
    for kind in classes:
        for base in kind.__mro__:
            if not base.__module__.startswith("torch."):
                yield vars(base)
                files.add(base.__module__)
    for file in files:
        yield dict(vars(sys.modules[file])) if file in sys.modules else {}


def _holds_compiled_function(names: Mapping[str, Any]) -> bool:
    return any(_is_compiled_function(value) for value in list(names.values()))


def _is_compiled_function(value: Any) -> bool:
    marks = getattr(value, "__dict__", None)
    if not isinstance(marks, Mapping) or isinstance(value, torch.nn.Module):
        return False
    return "_torchdynamo_orig_callable" in marks and not marks.get("_torchdynamo_disable")


def alters_fast_path(module: torch.nn.Module) -> bool:
    """Tells whether the module would have run a fused inference kernel that any hook switches off."""
    if not isinstance(module, torch.nn.TransformerEncoderLayer) or module.training:
        return False
    attention = module.self_attn
    fuses = (
        torch.backends.mha.get_fastpath_enabled()
        and attention.batch_first
        and attention.in_proj_bias is not None
        and attention._qkv_same_embed_dim
        and attention.num_heads % 2 == 0
        and bool(module.activation_relu_or_gelu)
        and module.norm1.eps == module.norm2.eps
        and not torch.is_autocast_enabled()
    )
    return fuses and not (torch.is_grad_enabled() and any(p.requires_grad for p in module.parameters()))
