"""Plain tensors on CPU are described and measured in one go, and nothing else is."""

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

from msprobe.adapters.pytorch.dtypes import TORCH_DTYPES
from msprobe.adapters.pytorch.reductions import TorchReducer

EVERYTHING = frozenset({"statistics", "sketch", "checksums"})
NUMBERS = torch.linspace(0, 100, 7 * 130).reshape(7, 130)


@pytest.mark.filterwarnings("ignore:ComplexHalf")
@pytest.mark.parametrize("dtype", TORCH_DTYPES.values(), ids=TORCH_DTYPES)
def test_the_quick_way_gives_form_and_numbers_of_the_long_one(dtype):
    quick, long = TorchReducer(), TorchReducer()
    tensors = [NUMBERS.to(dtype), NUMBERS.to(dtype)[0, 3:], NUMBERS.to(dtype)[:0]]
    for tensor in tensors:
        measured = quick.measure_plain(tensor, EVERYTHING)
        assert measured is not None
        assert measured[0] is long.describe(tensor)
        long.measure(tensor, EVERYTHING)
    expected = long.collect()
    for column, values in quick.collect().items():
        np.testing.assert_array_equal(values, expected[column], err_msg=column)


class _Subclass(torch.Tensor):
    pass


def _emptied():
    view = torch.ones(8)[4:]
    view.untyped_storage().resize_(0)
    return view


NOT_PLAIN = {
    "transposed": lambda: torch.ones(2, 3).T,
    "conjugated": lambda: torch.ones(2, dtype=torch.complex64).conj(),
    "negated": lambda: torch.ones(2, dtype=torch.complex64).conj().imag,
    "meta": lambda: torch.ones(2, device="meta"),
    "sparse": lambda: torch.ones(2, 2).to_sparse(),
    "subclass": lambda: torch.ones(2).as_subclass(_Subclass),
    "zero without memory": lambda: torch._efficientzerotensor(2),
    "emptied": _emptied,
}


@pytest.mark.parametrize("make", NOT_PLAIN.values(), ids=NOT_PLAIN)
def test_what_does_not_lie_plainly_in_memory_goes_the_long_way(make):
    reducer = TorchReducer()
    assert reducer.measure_plain(make(), EVERYTHING) is None
    assert len(reducer.collect()["norm"]) == 0


def test_a_function_mode_does_not_hear_of_the_quick_way():
    heard = []

    class Hearing(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            heard.append(func)
            return func(*args, **(kwargs or {}))

    tensor = torch.ones(2)
    with Hearing():
        assert TorchReducer().measure_plain(tensor, EVERYTHING) is None
    assert heard == []
