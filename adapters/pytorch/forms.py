"""What a torch tensor looks like, and where its plain values are.

``describe`` is on the path of every recorded tensor, so forms are interned by what they depend on.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.nn.parameter import is_lazy

from msprobe.adapters.pytorch.dtensors import local_of
from msprobe.adapters.pytorch.dtypes import NAMES, dtype_name
from msprobe.adapters.pytorch.placed import Placed, text_of
from msprobe.core.sites import Form

_PLAIN_DISPATCH: Final = torch._C._disabled_torch_dispatch_impl
#: Kinds whose shape is not a tuple of numbers, or not known yet.
_WITHOUT_SHAPE: Final = ("nested", "uninitialized")
_functorch: Any = torch._C._functorch
_is_transformed: Any = _functorch.is_functorch_wrapped_tensor
_PLAIN: Final = (torch.Tensor, torch.nn.Parameter)

_forms: dict[tuple[torch.dtype, torch.Size, str, str], Form] = {}


def describe(tensor: torch.Tensor | Placed, *, keyed_globally: bool = True) -> Form:
    """Gives the form of a tensor of any kind; for a distributed one, that of the local shard with its layout.

    Only a ``dense`` form has values that ``values_of`` can give. ``keyed_globally`` tells whether sketches and
    checksums of a placed tensor count elements by their index in the whole one.
    """
    part = tensor if type(tensor) in _PLAIN else local_of(tensor)
    layout = ""
    if isinstance(part, Placed):
        part, layout = part.tensor, text_of(part.layout, is_global=keyed_globally)
    local, kind = _local(part)
    shape = torch.Size() if kind in _WITHOUT_SHAPE else local.shape
    key = (local.dtype, shape, kind, layout)
    form = _forms.get(key)
    if form is None:
        form = _forms[key] = Form(dtype_name(local.dtype), tuple(shape), kind, layout)
    return form


def values_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Gives the plain strided tensor with this tensor's (local) values; None where there is none.

    A functional collective that is still under way is waited for, as any reader of its result would.
    """
    local, kind = _local(tensor)
    return local if kind == "dense" else None


def _local(tensor: torch.Tensor) -> tuple[torch.Tensor, str]:
    """Takes wrappers off and tells the kind of what is inside."""
    while True:
        cls = type(tensor)
        if cls.__torch_dispatch__ is not _PLAIN_DISPATCH:
            inner = _unwrap_subclass(tensor, cls.__name__)
            if inner is None:
                return tensor, _subclass_kind(tensor, cls.__name__)
            tensor = inner
        elif _is_transformed(tensor):
            if _functorch.is_batchedtensor(tensor) or not _functorch.is_gradtrackingtensor(tensor):
                return tensor, "functorch"
            tensor = _functorch.get_unwrapped(tensor)
        else:
            return tensor, _plain_kind(tensor)


def _unwrap_subclass(tensor: Any, name: str) -> torch.Tensor | None:
    if name == "AsyncCollectiveTensor":
        done: torch.Tensor | None = tensor.trigger_wait()
        inner: torch.Tensor = tensor.elem if done is None else done  # older versions return nothing
        return inner
    return tensor._local_tensor if name == "DTensor" else None


def _subclass_kind(tensor: torch.Tensor, name: str) -> str:
    if name == "FakeTensor":
        return "fake"
    return "nested" if tensor.is_nested else f"subclass:{name}"


def _plain_kind(tensor: torch.Tensor) -> str:
    if type(tensor) not in _PLAIN and is_lazy(tensor):
        return "uninitialized"  # of a lazy module
    if tensor.layout is not torch.strided:
        return str(tensor.layout).removeprefix("torch.").lstrip("_")
    if tensor.is_meta:
        return "meta"
    if tensor.is_nested:
        return "nested"
    if tensor._is_zerotensor():
        return "zerotensor"  # of forward-mode derivatives: zeros that have no memory
    if tensor.dtype not in NAMES:
        return "quantized" if tensor.is_quantized else "packed"
    if not tensor.untyped_storage().nbytes() and tensor.numel():
        return "freed"  # FSDP empties the storage of gathered parameters between uses
    return "dense"
