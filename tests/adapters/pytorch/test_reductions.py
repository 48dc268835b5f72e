"""The torch reducer against the NumPy reference, for every format, layout, device path and surrounding."""

import contextlib
import threading

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from msprobe.adapters.pytorch.dtypes import TORCH_DTYPES, dtype_name, torch_dtype
from msprobe.adapters.pytorch.reductions import TorchReducer
from msprobe.core import checksums, kernels, row_statistics, sketches, statistics
from msprobe.core.dtypes import FORMATS
from msprobe.core.records import SKETCH_SIZE

EVERYTHING = frozenset({"statistics", "sketch", "checksums"})
#: The path of CPU tensors, the same without C kernels, and that of accelerators run on the CPU.
PATHS: dict[str, dict[str, frozenset[str]]] = {"host": {}, "numpy": {}, "device": {"host_devices": frozenset()}}
#: Formats that the C kernels add up in float64; others are as good as the recorder promises.
WIDE = (torch.float64, torch.complex128, torch.int32, torch.int64, torch.uint32, torch.uint64)
FLOATS = ("min", "max", "mean", "mean_abs", "m2", "norm")
COUNTS = ("nan", "pos_inf", "neg_inf", "zero")


@pytest.fixture(params=PATHS)
def reducer(request):
    with kernels.without() if request.param == "numpy" else contextlib.nullcontext():
        yield TorchReducer(**PATHS[request.param])


def tensor_of(name, shape=(7, 130), seed=0):
    generator = torch.Generator().manual_seed(seed)
    dtype = TORCH_DTYPES[name]
    if name.startswith("complex"):
        return (
            (torch.randn((*shape, 2), generator=generator, dtype=torch.float64) * 3)
            .to(torch.view_as_real(torch.empty(0, dtype=dtype)).dtype)[..., :]
            .view(dtype)[..., 0]
        )
    if FORMATS[name].kind == "float":
        return (torch.randn(shape, generator=generator) * 3).to(dtype)
    low = 0 if name in ("bool", *(n for n in FORMATS if n.startswith("uint"))) else -100
    return torch.randint(low, 2 if name == "bool" else 100, shape, generator=generator).to(dtype)


def doubles(tensor):
    """The elements as NumPy float64 or integers, by torch's own conversion."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.dtype.is_complex:
        return torch.view_as_real(tensor).double().numpy().reshape(*tensor.shape, 2)
    return tensor.double().numpy() if tensor.dtype.is_floating_point else tensor.numpy()


def raw_bits(tensor):
    real = torch.view_as_real(tensor.resolve_conj()) if tensor.dtype.is_complex else tensor
    flat = real.resolve_neg().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().view(f"u{flat.element_size()}")


def assert_measured(reducer, *tensors):
    slots = [reducer.measure(t, EVERYTHING) for t in tensors]
    columns = reducer.collect()
    for slot, tensor in zip(slots, tensors, strict=True):
        values = doubles(tensor)
        with kernels.without():
            expected, sketch = statistics.measure(values), sketches.sketch(values)
            sums = checksums.checksums(raw_bits(tensor), dtype_name(tensor.dtype))
        norm = np.nan_to_num(expected.norm)
        near = 1e-9 if tensor.dtype in WIDE else 1e-6
        slack = {"mean": near * np.nan_to_num(expected.mean_abs), "m2": 1e-13 * norm * norm}
        for name in FLOATS:
            measured, rtol = columns[name][slot], near * 10 if name == "m2" else near
            np.testing.assert_allclose(measured, getattr(expected, name), rtol, slack.get(name, 0.0), err_msg=name)
        for name in COUNTS:
            assert columns[name][slot] == getattr(expected, name), name
        np.testing.assert_allclose(columns["sketch"][slot], sketch, rtol=1e-12, atol=1e-12 * norm)
        assert (columns["checksum"][slot], columns["content_sum"][slot]) == sums


def test_canonical_names_lead_back_to_their_dtype():
    assert set(TORCH_DTYPES) <= set(FORMATS)
    for name, dtype in TORCH_DTYPES.items():
        assert dtype_name(dtype) == name
        assert dtype.itemsize * 8 == FORMATS[name].bits
    assert torch_dtype("tf32") is None


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("name", TORCH_DTYPES)
def test_every_format(reducer, name):
    values = tensor_of(name)
    assert_measured(reducer, values, values.t(), values[::2, 3:90:3], values[0, 0], values[:0])


@pytest.mark.parametrize("name", ["fp64", "fp32", "bf16", "fp16", "int64", "bool", "fp8_e4m3", "complex64"])
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[:, 1:100:2],
        lambda x: x[:1].expand(90, -1),
        lambda x: x[3, 5],
        lambda x: x[:, None].transpose(0, 2),
        lambda x: x[:0],
        lambda x: x[0, 0].expand(700, 300),
    ],
    ids=["transposed", "strided", "expanded", "0-dim", "permuted", "empty", "one element 210,000 times"],
)
def test_every_layout(reducer, name, view):
    assert_measured(reducer, view(tensor_of(name)))


@pytest.mark.parametrize("name", ["fp32", "bf16", "fp64", "fp16", "fp8_e5m2"])
def test_nonfinite_elements_are_counted_and_left_out(reducer, name):
    values = tensor_of(name).double()
    values.view(-1)[::7], values.view(-1)[1::11], values.view(-1)[2::13] = float("nan"), float("inf"), -float("inf")
    values.view(-1)[3::17] = 0.0
    values = values.to(torch_dtype(name))
    assert_measured(reducer, values, torch.full((5,), float("nan")).to(values.dtype), torch.tensor([float("inf"), 1.0]))


@pytest.mark.parametrize("scale", [1e-45, 1e-40, 1e38])
def test_the_range_of_fp32(reducer, scale):
    assert_measured(reducer, torch.tensor([1.0, -0.5, 0.0, 2.0]) * scale)


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-200, 1e200, 1.7e308])
def test_the_range_of_fp64(reducer, scale):
    values = torch.tensor([1.0, -0.5, 0.0, 0.25], dtype=torch.float64) * scale
    reducer.measure(values, frozenset({"statistics"}))
    columns, expected = reducer.collect(), statistics.measure(values.numpy())
    for name in FLOATS:
        assert columns[name][0] == pytest.approx(getattr(expected, name), rel=1e-6), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int16])
@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 32767, 32768, 32769, 100_001])
def test_sizes(reducer, size, dtype):
    assert_measured(reducer, (torch.randn(size, generator=torch.Generator().manual_seed(size)) * 9).to(dtype))


def test_blocks_of_the_device_path_do_not_show(monkeypatch):
    from msprobe.adapters.pytorch import device_sketches, device_statistics

    monkeypatch.setattr(device_statistics, "BLOCK", 1000)
    monkeypatch.setattr(device_sketches, "BLOCK", 4096)
    device_sketches._signs.cache_clear()
    reducer = TorchReducer(host_devices=frozenset())
    try:
        assert_measured(reducer, torch.randn(70, 333), torch.randn(333, 70).t(), torch.randn(3, 5000).t().bfloat16())
    finally:
        device_sketches._signs.cache_clear()


@pytest.mark.long
@pytest.mark.parametrize("size", [1_000_000, 10_000_000])
def test_large_tensors(reducer, size):
    assert_measured(reducer, torch.randn(size), torch.randn(size).bfloat16())


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 2**53 + 1])
def test_integers_beyond_2_to_53_are_rounded_once(reducer, value):
    assert_measured(reducer, torch.tensor([value, 0, 1]))


def test_rows(reducer):
    tensors = [torch.randn(4, 5, 60), torch.randn(3, 70).bfloat16(), torch.randn(8), torch.tensor(2.0)]
    tensors += [torch.randn(3, 4, dtype=torch.complex64), torch.zeros(0, 4), torch.zeros(3, 0)]
    tensors[0][1, 2, 3] = float("nan")
    for tensor in tensors:
        snapshot = reducer.rows(tensor)
        reducer.collect()
        source = tensor.numpy() if tensor.is_complex() else doubles(tensor)
        expected = row_statistics.measure_rows(source)
        assert set(snapshot.columns) == set(expected)
        for name, column in expected.items():
            np.testing.assert_allclose(snapshot.columns[name], column, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("name", TORCH_DTYPES)
def test_a_snapshot_keeps_every_bit_of_the_moment(reducer, name):
    values = tensor_of(name)
    snapshots = [reducer.snapshot(v) for v in (values, values.t(), values[0, 0], values[:0])]
    expected = [raw_bits(v).tobytes() for v in (values, values.t(), values[0, 0], values[:0])]
    values.zero_()
    reducer.collect()
    assert [s.data.tobytes() for s in snapshots] == expected
    assert snapshots[1].shape == (130, 7)
    assert {s.dtype for s in snapshots} == {name}


def test_lazy_conjugation_and_negation_are_written_out(reducer):
    values = torch.randn(9, dtype=torch.complex64).conj()
    assert_measured(reducer, values, values.imag)
    assert np.array_equal(reducer.snapshot(values.imag).data.view("f4"), values.imag.resolve_neg().numpy())


def test_what_was_not_asked_holds_fillers(reducer):
    slots = [reducer.measure(torch.ones(3), frozenset(w)) for w in ([], ["statistics"], ["sketch"], ["checksums"])]
    columns = reducer.collect()
    assert np.isnan(columns["norm"][slots]).tolist() == [True, False, True, True]
    assert (columns["nan"][slots] == -1).tolist() == [True, False, True, True]
    assert np.isnan(columns["sketch"][slots]).all(axis=1).tolist() == [True, True, False, True]
    assert (columns["checksum"][slots] != 0).tolist() == [False, False, False, True]


def test_slots_start_again_after_each_collection(reducer):
    for step in range(3):
        slots = [reducer.measure(torch.full((2,), float(i + step)), EVERYTHING) for i in range(5)]
        columns = reducer.collect()
        assert slots == [0, 1, 2, 3, 4]
        assert columns["max"].tolist() == [i + step for i in range(5)]
        assert columns["sketch"].shape == (5, SKETCH_SIZE)
    assert len(reducer.collect()["norm"]) == 0


def test_tables_grow(reducer):
    values = torch.ones(1)
    for _ in range(9000):
        reducer.measure(values, frozenset())
    last = reducer.measure(values, frozenset({"statistics"}))
    assert reducer.collect()["norm"][last] == 1.0


def test_threads_share_a_reducer(reducer):
    found = {}

    def work(number):
        value = torch.full((50,), float(number))
        found[number] = [reducer.measure(value, EVERYTHING) for _ in range(200)]

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    columns = reducer.collect()
    for number, slots in found.items():
        assert set(columns["max"][slots]) == {number}


class Watching(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.append(function)
        return function(*args, **(kwargs or {}))


class WatchingFunctions(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        self.seen.append(function)
        return function(*args, **(kwargs or {}))


def measure_all(reducer, tensor):
    reducer.describe(tensor)
    reducer.measure(tensor, EVERYTHING)
    reducer.snapshot(tensor)
    reducer.rows(tensor)
    return reducer.collect()


def test_neither_modes_nor_autocast_nor_autograd_notice(reducer):
    weight = torch.nn.Parameter(torch.randn(40, 40))
    expected = measure_all(reducer, weight.detach().clone())
    dispatch, functions = Watching(), WatchingFunctions()
    with dispatch, functions, torch.autocast("cpu", torch.bfloat16):
        functions.seen.clear()
        measured = measure_all(reducer, weight)
        seen = list(functions.seen)
    assert dispatch.seen == []
    assert seen == []
    assert weight._version == 0
    for name, column in expected.items():
        np.testing.assert_array_equal(measured[name], column)


def test_random_state_is_not_touched(reducer):
    before = torch.get_rng_state()
    numpy_before = np.random.get_state(legacy=False)["state"]["key"].copy()
    measure_all(reducer, torch.arange(1000.0))
    assert torch.equal(torch.get_rng_state(), before)
    assert np.array_equal(np.random.get_state(legacy=False)["state"]["key"], numpy_before)


def test_deterministic_algorithms_are_no_obstacle(reducer):
    torch._C._set_deterministic_algorithms(True)  # the public function imports all of the compiler first
    try:
        assert_measured(reducer, torch.randn(1000))
    finally:
        torch._C._set_deterministic_algorithms(False)


def test_another_default_device_or_dtype_is_no_obstacle(reducer):
    values = torch.randn(100)
    with torch.device("meta"):
        slot = reducer.measure(values, EVERYTHING)
        assert reducer.snapshot(values).data.size == 400
    assert reducer.collect()["norm"][slot] == pytest.approx(float(values.double().norm()))


def test_inference_mode_may_come_and_go():
    reducer = TorchReducer(host_devices=frozenset())
    with torch.inference_mode():
        inside = torch.randn(50)
        assert_measured(reducer, inside)
    assert_measured(reducer, inside, torch.randn(70_000))
    with torch.inference_mode():
        assert_measured(reducer, torch.randn(50))


def test_backward_hooks_measure_gradients_and_change_no_bit(reducer):
    def gradients(hook):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.GELU(), torch.nn.Linear(30, 5))
        hidden = model[0](torch.randn(8, 20))
        if hook:
            hidden.register_hook(lambda g: measure_all(reducer, g) and None)
        model[2](model[1](hidden)).square().sum().backward()
        return [p.grad for p in model.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(gradients(hook=False), gradients(hook=True), strict=True))


@pytest.mark.parametrize("kind", ["statistics", "sketch", "checksums", "rows", "snapshot"])
def test_tensors_are_not_changed(reducer, kind):
    values = torch.tensor([1.0, float("nan"), float("inf"), -0.0, 1e-40])
    before = values.clone().view(torch.int32)
    if kind in ("rows", "snapshot"):
        getattr(reducer, kind)(values)
    else:
        reducer.measure(values, frozenset({kind}))
    assert torch.equal(values.view(torch.int32), before)
    assert values._version == 0
