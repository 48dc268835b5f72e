"""The Triton kernel gives what the definitions in NumPy give; run by Triton's interpreter, for no GPU is needed then.

The interpreter is chosen when Triton is imported, so each check runs in a process of its own.
"""

import importlib.util
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="the Triton kernel is NOT tested here: no triton (pip install triton==3.9.0)",
)

PROGRAM = """
import numpy as np, torch
from msprobe.adapters.pytorch import triton_kernels as kernels
from msprobe.core import checksums, sketches, statistics
from msprobe.core.kernels import without

EVERYTHING = frozenset({"statistics", "sketch", "checksums"})
NAMES = ("min", "max", "mean", "mean_abs", "m2", "norm")

def check(tensor, offset=0):
    assert kernels.can_measure(tensor)
    floats, counts = kernels.measure(tensor, EVERYTHING, offset)
    bits = tensor.contiguous().view(kernels._MEMORY[tensor.dtype]).numpy()
    values = tensor.double().numpy()
    with without():
        expected = statistics.measure(values)
        sketch = sketches.sketch(values, offset=offset)
        sums = checksums.checksums(bits.view(f"u{bits.itemsize}"), kernels.FORMATS[tensor.dtype], offset=offset)
    for name, value in zip(NAMES, floats.tolist()):
        want = getattr(expected, name)
        slack = 1e-6 * np.nan_to_num(expected.mean_abs) if name == "mean" else 1e-12 * np.nan_to_num(expected.norm) ** 2
        np.testing.assert_allclose(value, want, rtol=1e-6, atol=slack if name in ("mean", "m2") else 0, err_msg=name)
    assert (floats[0].item(), floats[1].item()) == (expected.min, expected.max) or not expected.finite
    assert counts.tolist()[:4] == [expected.nan, expected.pos_inf, expected.neg_inf, expected.zero]
    np.testing.assert_allclose(floats[6:], sketch, rtol=1e-12, atol=1e-12 * np.nan_to_num(expected.norm))
    assert tuple(counts[4:].numpy().view(np.uint64).tolist()) == sums

generator = torch.Generator().manual_seed(0)
for dtype in (torch.float32, torch.float16, torch.bfloat16):
    for size, offset in ((1, 0), (63, 0), (4096, 0), (9000, 0), (5000, 1), (5000, 4095), (300, 10**9 + 77)):
        check((torch.randn(size, generator=generator) * 3).to(dtype), offset)
    mixed = torch.randn(6000, generator=generator)
    for i, value in enumerate((float("nan"), float("inf"), -float("inf"), 0.0, -0.0)):
        mixed[i :: 7 + 2 * i] = value
    check(mixed.to(dtype))
    check(torch.full((300,), float("nan")).to(dtype))
    check((100 + 1e-2 * torch.randn(5000, generator=generator)).to(dtype))
    check(torch.full((5000,), 0.1).to(dtype))
    for end in (torch.finfo(dtype).max, torch.finfo(dtype).tiny, torch.finfo(dtype).smallest_normal / 64):
        check((torch.rand(5000, generator=generator) * 2 - 1).mul(end).to(dtype))
every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
check(every.view(torch.bfloat16))
check(every.view(torch.float16))
assert not kernels.can_measure(torch.ones(3, 4).T)
assert not kernels.can_measure(torch.ones(3, dtype=torch.float64))

from msprobe.adapters.pytorch.placed import Placed
from msprobe.adapters.pytorch.reductions import TorchReducer
from msprobe.core.placement import Layout

layout = Layout((4000,), flat=(1001, 2000))
by_kernel = TorchReducer(frozenset(), kernel_devices=frozenset({"cpu"}))
others = TorchReducer()
for reducer in (by_kernel, others):
    values = torch.randn(2000, generator=torch.Generator().manual_seed(3)).to(torch.bfloat16)
    for tensor in (values, values.view(40, 50).T, Placed(values, layout), values.double(), values[:0]):
        for what in (EVERYTHING, frozenset({"checksums"}), frozenset({"statistics"})):
            reducer.measure(tensor, what)
left, right = by_kernel.collect(), others.collect()
for name, column in left.items():
    np.testing.assert_allclose(column, right[name], rtol=1e-6, atol=1e-9, err_msg=name)
    assert name not in ("checksum", "content_sum", "zero") or np.array_equal(column, right[name])
from msprobe.adapters.pytorch import device_kernels
assert not device_kernels._failed, device_kernels._failed
print("all agree")
"""


def test_it_agrees_with_numpy_under_the_interpreter():
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout.strip() == "all agree", done.stderr[-3000:]
