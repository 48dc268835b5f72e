"""Finds the Triton kernel where there is Triton, and does without where it fails: then torch operators do the work."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from msprobe.core.runs import Runs

_failed: list[str] = []


def measure(values: Tensor, what: frozenset[str], runs: Runs | None) -> tuple[Tensor, Tensor] | None:
    """Measures a tensor in one read on its device, as rows of floats and counts; None where the kernel cannot."""
    kernels = None if _failed else _load()
    if kernels is None or not kernels.can_measure(values) or (runs is not None and len(runs[0]) != 1):
        return None
    try:
        measured: tuple[Tensor, Tensor] = kernels.measure(values, what, 0 if runs is None else int(runs[0][0]))
    except Exception as error:  # noqa: BLE001 -- a compiler that fails must not end the user's step
        _failed.append(f"{type(error).__name__}: {error}")
        warnings.warn(f"the Triton kernel failed, torch operators do its work: {_failed[0]}", stacklevel=2)
        return None
    return measured


@functools.cache
def _load() -> Any:
    if importlib.util.find_spec("triton") is None:
        return None
    try:
        return importlib.import_module("msprobe.adapters.pytorch.triton_kernels")
    except (ImportError, AttributeError, RuntimeError) as error:
        _failed.append(f"{type(error).__name__}: {error}")
        return None
