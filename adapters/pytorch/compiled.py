"""Compiled and fused modules: what hooks cannot see, and what hooks would change.

A compiled module is recorded at its boundary. Nothing inside is hooked: hooks added after the first compiled call never
fire, and hooks that are there before it would be traced into the compiled code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from msprobe.adapters.pytorch.nodes import WatchedModule

_FUSED = (torch.nn.TransformerEncoderLayer, torch.nn.TransformerEncoder, torch.nn.MultiheadAttention)


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
        self._compiled: Any = module._compiled_call_impl

        def call(*args: Any, **kwargs: Any) -> Any:
            before(watched, module, args, kwargs)
            output = None
            try:
                output = compiled(*args, **kwargs)
            finally:
                after(watched, module, output)
            return output

        compiled = self._compiled
        self._wrapper = call
        module._compiled_call_impl = call

    def remove(self) -> None:
        """Puts the compiled call back, unless somebody replaced it since."""
        if self._module._compiled_call_impl is self._wrapper:
            self._module._compiled_call_impl = self._compiled


def has_compiled(roots: list[torch.nn.Module]) -> bool:
    """Tells whether any module runs compiled."""
    from msprobe.adapters.pytorch.nodes import is_compiled

    return any(is_compiled(module) for root in roots for module in root.modules())


def alters_fast_path(module: torch.nn.Module) -> bool:
    """Tells whether the module would have run a fused inference kernel that any hook switches off."""
    if not isinstance(module, _FUSED) or module.training or not torch.backends.mha.get_fastpath_enabled():
        return False
    if torch.is_autocast_enabled(next((p.device.type for p in module.parameters()), "cpu")):
        return False
    if isinstance(module, torch.nn.TransformerEncoder) and not module.enable_nested_tensor:
        return False
    return not (torch.is_grad_enabled() and any(parameter.requires_grad for parameter in module.parameters()))
