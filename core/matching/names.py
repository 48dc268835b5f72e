"""Module paths without what wrappers put into them."""

from __future__ import annotations

#: Segments that wrappers add to a path and that say nothing about the model: DistributedDataParallel and other
#: containers of one ``module``, FSDP1, torch.compile, activation checkpointing.
WRAPPER_SEGMENTS = frozenset({"module", "_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module"})


def normalise(path: str) -> str:
    """Removes wrapper segments from a node's path; numbering and operator names stay.

    >>> normalise("module.model._orig_mod.layers.3.mlp/aten.mm.default")
    'model.layers.3.mlp/aten.mm.default'
    """
    module, slash, operator = path.partition("/")
    kept = ".".join(part for part in module.split(".") if part not in WRAPPER_SEGMENTS)
    return f"{kept}{slash}{operator}"


def split_operator(path: str) -> tuple[str, str]:
    """Splits a node's path into the module's path and the operator's name ("" for a module)."""
    module, _, operator = path.partition("/")
    return module, operator
