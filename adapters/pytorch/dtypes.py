"""The canonical name of each torch dtype, and back."""

from __future__ import annotations

from typing import Final

import torch

_ATTRIBUTES: Final = {
    "fp64": "float64",
    "fp32": "float32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "fp8_e4m3fnuz": "float8_e4m3fnuz",
    "fp8_e5m2fnuz": "float8_e5m2fnuz",
    "fp8_e8m0": "float8_e8m0fnu",
    "complex32": "complex32",
    "complex64": "complex64",
    "complex128": "complex128",
    "bool": "bool",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "uint8": "uint8",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
}

#: Canonical name -> torch dtype, for those that this version of torch has.
TORCH_DTYPES: Final[dict[str, torch.dtype]] = {
    name: getattr(torch, attribute) for name, attribute in _ATTRIBUTES.items() if hasattr(torch, attribute)
}
NAMES: Final[dict[torch.dtype, str]] = {dtype: name for name, dtype in TORCH_DTYPES.items()}


def dtype_name(dtype: torch.dtype) -> str:
    """Gives the canonical name of a dtype; for one that ``core.dtypes`` does not know, torch's own name."""
    return NAMES.get(dtype) or str(dtype).removeprefix("torch.")


def torch_dtype(name: str) -> torch.dtype | None:
    """Gives the dtype of a canonical name; None where this version of torch has no such dtype."""
    return TORCH_DTYPES.get(name)
