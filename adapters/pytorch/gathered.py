"""Knows the accumulated gradient that is the very one which a backward pass gave, so that it is not read again.

The first gradient of a step becomes ``parameter.grad`` without a copy, and is mostly the only one. It is taken for
known while its storage lives, its version counter stands and some of its elements, spread over all of it, have the bits
that they had: an operator on ``.data`` and a kernel of another library change elements and count no version. Where a
gradient is small, reading all of it costs no more, and it is read.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msprobe.adapters.pytorch import host_arrays
from msprobe.core.kernels import arrays
from msprobe.core.kernels.library import available

if TYPE_CHECKING:
    import torch

#: Elements from which on a gradient is not read again.
LEAST_ELEMENTS: Final = 2**18
#: How many of them are looked at.
SAMPLE: Final = 251


class _Known(NamedTuple):
    storage: weakref.ref[Any]
    version: int
    shape: torch.Size
    sample: int
    seq: int


class Gathered:
    """The gradients of parameters that backward passes of this step gave."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}

    def note(self, gradient: torch.Tensor, seq: int) -> None:
        """Remembers which record has a gradient as it now is."""
        sample = _sample(gradient)
        if sample is not None:
            storage = weakref.ref(gradient.untyped_storage())
            self._known[gradient.data_ptr()] = _Known(storage, gradient._version, gradient.shape, sample, seq)

    def find(self, gradient: torch.Tensor) -> int | None:
        """Gives the record that has it, None where it may have changed."""
        known = self._known.get(gradient.data_ptr()) if self._known else None
        if known is None or known.storage() is not gradient.untyped_storage():
            return None
        same = (known.version, known.shape) == (gradient._version, gradient.shape)
        return known.seq if same and _sample(gradient) == known.sample else None

    def clear(self) -> None:
        """Forgets everything, at the end of a step."""
        self._known.clear()


def _sample(gradient: torch.Tensor) -> int | None:
    """Gives a checksum over some elements; None for gradients that are to be read in full."""
    plain = host_arrays.plain_form(gradient) if available() and not gradient.is_inference() else None
    if plain is None or plain.elements < LEAST_ELEMENTS:
        return None
    place = arrays.Place((SAMPLE,), (plain.elements // SAMPLE,))
    result = arrays.measure_memory(gradient.data_ptr(), (plain.code, 1), arrays.CHECKSUMS, place)
    return None if result is None else int(result[1][len(arrays.COUNTS)])
