"""Torch tensors in host memory, for the C kernels as they lie, for NumPy without a copy wherever it has the format."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from msprobe.adapters.pytorch import forms
from msprobe.adapters.pytorch.device_statistics import real_blocks
from msprobe.adapters.pytorch.dtypes import NAMES, TORCH_DTYPES
from msprobe.core.content_vectors import content_vectors as core_content_vectors
from msprobe.core.content_vectors import vectors_of_memory
from msprobe.core.kernels.arrays import FORMATS, Place, Result, measure_memory
from msprobe.core.runs import Runs, real_runs
from msprobe.core.statistics import BLOCK, flat_blocks, real_elements

if TYPE_CHECKING:
    import numpy as np

    from msprobe.core.sites import Form

Array = NDArray[Any]

#: Formats that NumPy lacks or computes slowly, and the wider one that holds each of their values exactly.
_WIDER: Final = {
    TORCH_DTYPES[name]: torch.complex64 if name == "complex32" else torch.float32
    for name in ("bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz", "fp8_e8m0", "complex32")
    if name in TORCH_DTYPES
}
#: What the kernels call each dtype.
_FORMS: Final = {TORCH_DTYPES[name]: form for name, form in FORMATS.items() if name in TORCH_DTYPES}
_UNSIGNED: Final = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


_C: Any = torch._C
_PLAIN_TYPES: Final = (torch.Tensor, torch.nn.Parameter)


def _plain_keys() -> frozenset[int]:
    """Gives the sets of dispatch keys of plain tensors: no view that conjugates, no wrapper, nothing but memory."""
    key, keys = _C.DispatchKey, _C.DispatchKeySet
    inference = keys(key.CPU)
    tracked = inference | keys(key.ADInplaceOrView) | keys(key.AutogradCPU)
    both = (inference, tracked)
    return frozenset(found.raw_repr() for one in both for found in (one, one | keys(key.AutocastCPU)))


_PLAIN_KEYS: Final = _plain_keys()


class PlainForm(NamedTuple):
    """What is to be known of a tensor that lies in row-major order without gaps; ``code`` as in ``FORMATS``."""

    form: Form
    code: int
    elements: int


_plain_forms: dict[tuple[torch.dtype, torch.Size], PlainForm] = {}


def plain_form(tensor: Tensor) -> PlainForm | None:
    """Gives the form of a tensor that the kernels can read where ``data_ptr`` says, as it lies; None for any other.

    No operator runs and no mode hears of it, so this needs no isolation.
    """
    if (
        type(tensor) not in _PLAIN_TYPES
        or _C._len_torch_function_stack()
        or _C._dispatch_keys(tensor).raw_repr() not in _PLAIN_KEYS
        or not tensor.is_contiguous()
    ):
        return None
    key = (tensor.dtype, tensor.shape)
    known = _plain_forms.get(key)
    if known is None:
        known = _learn(tensor, key)
    if known is not None and not tensor.untyped_storage().nbytes() and known.elements:
        return None  # emptied by FSDP
    return known


def _learn(tensor: Tensor, key: tuple[torch.dtype, torch.Size]) -> PlainForm | None:
    form, kernel_form = forms.describe(tensor), _FORMS.get(tensor.dtype)
    if form.kind != "dense" or kernel_form is None:
        return None
    code, pair = kernel_form
    known = _plain_forms[key] = PlainForm(form, code, tensor.numel() * pair)
    return known


def measure(values: Tensor, what: int, runs: Runs | None = None) -> Result | None:
    """Measures a tensor where it lies (``core.kernels``); None where only NumPy can.

    ``runs`` tells where its elements stand in the whole tensor.
    """
    form = _FORMS.get(values.dtype)
    if form is None:
        return None
    written = _written_out(values)
    strides = None if written.is_contiguous() else written.stride()
    where = None if runs is None else real_runs(runs, written.numel(), form[1])
    return measure_memory(written.data_ptr(), form, what, Place(tuple(written.shape), strides, runs=where))


def content_vectors(values: Tensor) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Sums the content of rows and columns of a real tensor (``core.content_vectors``)."""
    whole, dtype = _written_out(values).contiguous(), NAMES[values.dtype]
    found = vectors_of_memory(whole.data_ptr(), dtype, tuple(whole.shape))
    return core_content_vectors(bits(whole), dtype) if found is None else found


def blocks(values: Tensor) -> Iterator[Array]:
    """Gives the real elements in row-major order, widened where NumPy lacks the format."""
    if values.dtype in _WIDER:
        return (block.to(torch.float32).numpy() for block in real_blocks(values, BLOCK))
    return flat_blocks(real_elements(_written_out(values).numpy()))


def bits(values: Tensor) -> Array:
    """Views elements as unsigned integers of their width; complex ones as pairs along a new last axis."""
    real = resolved(values)
    size = real.element_size()
    view: Array = real.view(_UNSIGNED[size]).numpy().view(f"u{size}")
    return view


def widened(values: Tensor) -> Tensor:
    """Gives the same values in a format that NumPy has."""
    return _written_out(values).to(_WIDER.get(values.dtype, values.dtype))


def resolved(values: Tensor) -> Tensor:
    """Writes out lazy conjugation and negation, and views complex numbers as pairs."""
    written = _written_out(values)
    return torch.view_as_real(written) if written.is_complex() else written


def _written_out(values: Tensor) -> Tensor:
    return values.resolve_conj().resolve_neg() if values.is_conj() or values.is_neg() else values
