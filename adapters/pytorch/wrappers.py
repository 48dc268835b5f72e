"""Wrappers around modules that compute nothing themselves: data parallelism, checkpointing, half precision.

A wrapper is no node of the graph: the module in it stands under the wrapper's path, so that a model has the same names
however it was wrapped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

#: Class of a wrapper -> the child that it wraps. Looked for by name in the class and its bases, so nothing is imported;
#: add to it what wraps modules elsewhere.
WRAPPERS: Final[dict[str, str]] = {
    "DistributedDataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "ActivationWrapper": "_checkpoint_wrapped_module",
    "DeepSpeedEngine": "module",
    "Float16Module": "module",
}
#: Classes that torch puts before a module's own in place: ``fully_shard`` makes ``FSDPLinear`` of ``Linear``.
_MIXED_IN: Final = frozenset({"FSDPModule", "ReplicateModule", "DDP"})


def wrapped_in(module: torch.nn.Module) -> torch.nn.Module | None:
    """Gives the module that this one only wraps; None when it is no wrapper."""
    for kind in type(module).__mro__:
        child = WRAPPERS.get(kind.__name__)
        if child is not None:
            return module._modules.get(child)
    return None


def unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """Gives the innermost module that does the computing."""
    inner = wrapped_in(module)
    while inner is not None:
        module = inner
        inner = wrapped_in(module)
    return module


def wrappers_of(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """Gives the wrappers around a module, outermost first."""
    inner = wrapped_in(module)
    while inner is not None:
        yield module
        module, inner = inner, wrapped_in(inner)


def class_of(module: torch.nn.Module) -> type:
    """Gives the class that a module was written as: without what torch puts before it in place."""
    kind = type(module)
    if any(base.__name__ in _MIXED_IN and base.__module__.startswith("torch.") for base in kind.__bases__):
        return next((base for base in kind.__bases__ if base.__name__ not in _MIXED_IN), kind)
    return kind


def is_handed_on(tensor: torch.Tensor) -> bool:
    """Tells whether ``fully_shard`` has put an identity behind a tensor: its gradient is that of what was before."""
    return type(tensor.grad_fn).__name__ == "RegisterPostBackwardFunctionBackward"
