"""The C kernels give what the definitions in NumPy give, for every format, layout, size and instruction set."""

import math

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe.core import kernels
from msprobe.core.checksums import checksums, checksums_of
from msprobe.core.kernels import arrays
from msprobe.core.kernels.library import current
from msprobe.core.sketches import sketch
from msprobe.core.statistics import Statistics, measure

pytestmark = pytest.mark.skipif(not kernels.available(), reason=f"kernels: {kernels.status()}")

DTYPES = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
FLOATS = ["f2", "f4", "f8", "c8", "c16"]
FIELDS = ("min", "max", "mean", "mean_abs", "m2", "norm")
COUNTS = ("finite", "nan", "pos_inf", "neg_inf", "zero")
BLOCK = 2048
#: Results below the normal range are multiples of 5e-324.
DENORMAL = 2e-323
EVERYTHING = arrays.STATISTICS | arrays.SKETCH | arrays.CHECKSUMS


@pytest.fixture(params=["baseline", "avx2", "avx512"], autouse=True, scope="module")
def instructions(request):
    """Runs every test with each set of instructions that this machine has."""
    library = current()
    assert library is not None
    best = library.instructions()
    if not library.choose(request.param.encode()):
        pytest.skip(f"no {request.param} here")
    yield
    library.choose(best)


#: What the sums of floats, of float and narrower formats, are good for: the promise of the recorder, and less of m2.
PROMISE = 1e-6
M2 = 1e-5


def assert_same_statistics(measured, expected, quick=False):
    """Compares to rounding of float64, or where the kernel sums in float as well as the recorder promises."""
    for name in COUNTS:
        assert getattr(measured, name) == getattr(expected, name), name
    near = PROMISE if quick else 1e-9
    slack = {"mean": np.nan_to_num(expected.mean_abs) * (near if quick else 1e-13) + DENORMAL, "m2": 0.0}
    fields = list(FIELDS)
    if expected.norm < 1e150:
        slack["m2"] = 1e-15 * expected.norm**2
    elif expected.finite:  # the rounding of the mean alone may square to infinity
        fields.remove("m2")
        assert measured.m2 >= 0
    rtol = {"min": 0.0, "max": 0.0, "m2": M2 if quick else 1e-9}
    for name in fields:
        np.testing.assert_allclose(
            getattr(measured, name),
            getattr(expected, name),
            rtol=rtol.get(name, near),
            atol=slack.get(name, DENORMAL),
            err_msg=name,
        )


def is_quick(dtype):
    """Tells whether the kernel adds up float, not double."""
    return np.dtype(dtype).name in ("float16", "float32", "complex64", "bool", "int8", "uint8", "int16", "uint16")


def assert_same_sketch(sketched, expected, norm):
    """Allows rounding; where sums come near the end of float64 that decides between a number and infinity."""
    if norm > 1e300:
        assert not np.isnan(sketched).any()
    else:
        np.testing.assert_allclose(sketched, expected, rtol=1e-12, atol=1e-12 * np.nan_to_num(norm) + DENORMAL)


def assert_same(values, offset=0):
    """Checks each reduction alone, and all at once."""
    fused = arrays.measure_array(values, EVERYTHING, offset=offset)
    assert fused is not None
    floats, counts = fused[0].copy(), fused[1].copy()
    measured, sketched, sums = measure(values), sketch(values, offset=offset), checksums_of(values, offset=offset)
    with kernels.without():
        expected = measure(values)
        assert_same_statistics(measured, expected, quick=is_quick(values.dtype))
        assert_same_sketch(sketched, sketch(values, offset=offset), expected.norm)
        assert sums == checksums_of(values, offset=offset)
    assert_same_statistics(Statistics(measured.finite, *floats[:6], *counts[:4]), measured, is_quick(values.dtype))
    assert np.array_equal(floats[6:], sketched)
    assert tuple(counts[4:].view(np.uint64).tolist()) == sums


def random_values(dtype, shape, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * 40
    if dtype[0] == "u" or dtype == "?":
        values = np.abs(values)
    typed = values.astype(dtype)
    if dtype[0] == "c":
        typed.imag = rng.standard_normal(shape)
    return typed


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [0, 1, 2, 7, 63, 64, 65, BLOCK - 1, BLOCK, BLOCK + 1, 40_001])
def test_sizes(dtype, size):
    assert_same(random_values(dtype, size))


@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i8"])
def test_a_million_elements(dtype):
    assert_same(random_values(dtype, 1_000_003))


@pytest.mark.parametrize("dtype", ["i1", "u2", "f4", "f8", "c8"])
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x[::2, ::3],
        lambda x: x[:, ::-1],
        lambda x: x[::-1, 5:],
        lambda x: np.broadcast_to(x[0], (50, *x[0].shape)),
        lambda x: np.broadcast_to(x[0, 0], (300, 20)),
        lambda x: x[:, None, 1:].transpose(2, 1, 0),
        lambda x: x.reshape(10, 7, 6, 50).transpose(0, 2, 1, 3),
        lambda x: x.reshape(10, 7, 6, 50)[:, ::2, ::-1, 3],
        lambda x: x[3, 4],
        lambda x: x[:0].T,
        np.asfortranarray,
    ],
)
def test_any_layout(dtype, view):
    values = view(random_values(dtype, (70, 300)))
    assert_same(np.asarray(values))
    assert_same_statistics(measure(np.asarray(values)), measure(np.ascontiguousarray(values)), is_quick(dtype))


@given(st.permutations(range(5)), hnp.array_shapes(min_dims=5, max_dims=5, max_side=7), st.data())
@settings(max_examples=60, deadline=None)
def test_elements_are_visited_in_row_major_order(axes, shape, data):
    whole = np.arange(1, math.prod(shape) + 1, dtype=np.int32).reshape(shape)
    steps = tuple(slice(None, None, data.draw(st.sampled_from([1, 1, 2, -1]))) for _ in shape)
    view = whole[steps].transpose(axes)
    assert checksums_of(view) == checksums_of(np.ascontiguousarray(view))


@pytest.mark.parametrize("dtype", FLOATS)
def test_nonfinite_elements_are_counted_and_left_out(dtype):
    values = random_values(dtype, 10_000)
    flat = values.view(values.real.dtype)
    flat[:3000:7], flat[1:3000:11], flat[2:3000:13] = np.nan, np.inf, -np.inf
    flat[3::17] = 0.0
    flat[4::19] = -0.0
    assert_same(values)
    for filler in (np.nan, np.inf, -np.inf, 0.0, -0.0):
        assert_same(np.full(3000, filler, dtype))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("which", ["smallest_subnormal", "tiny", "max"])
def test_the_ends_of_the_range(dtype, which):
    end = getattr(np.finfo(dtype), which)
    values = np.random.default_rng(0).uniform(-1, 1, 5000).astype(np.dtype(dtype)) * end
    assert_same(values.astype(dtype))
    values[100:200] = np.nan
    assert_same(values.astype(dtype))


@pytest.mark.parametrize("small", [5e-324, 1e-310, 1e-200, 1.0])
@pytest.mark.parametrize("large", [1.0, 1e139, 1e200, 1.7e308])
def test_magnitudes_far_apart_in_one_tensor(small, large):
    values = np.random.default_rng(0).uniform(-1, 1, 3 * BLOCK)
    values[:BLOCK] *= small
    values[BLOCK:] *= large
    assert_same(values)
    assert_same(values[::-1])


def test_a_mean_far_from_zero_and_a_constant():
    noise = np.random.default_rng(0).standard_normal(50_000)
    assert_same(1e6 + noise * 1e-3)
    assert_same((1e3 + noise * 1e-3).astype(np.float32))
    values = 1e6 + noise * 1e-3
    values[::50] = np.nan
    assert_same(values)
    assert measure(np.full(100_000, 0.1)).m2 == pytest.approx(0.0, abs=1e-25)
    assert measure(np.full(1000, 1e-160)).m2 == 0.0
    assert measure(np.full(10_000, 4.7e196)).m2 == 0.0


def adversaries():
    """Tensors that are hard on sums in float, against which a sum in float64 is exact."""
    rng = np.random.default_rng(5)
    size = 5 * BLOCK + 300
    noise = rng.standard_normal(size)
    yield "one value", np.full(size, 0.1)
    yield "one value that rounds up", np.full(size, 1.0 + 2.0**-23)
    yield "alternating signs", np.where(np.arange(size) % 2, 1.0, -1.0) * (1 + 1e-6 * noise)
    yield "large mean, small spread", 1000 + 1e-3 * noise
    yield "larger mean", 3e4 + 0.02 * noise
    yield "many magnitudes", np.exp(noise * 6)
    yield "one outlier", np.where(np.arange(size) == 777, 1e15, noise)
    yield "outlier that overflows squares", np.where(np.arange(size) == 777, 3e37, noise)
    yield "all that overflow squares", noise * 1e37
    yield "squares underflow", noise * 1e-30
    yield "denormals", noise * 1e-41
    yield "denormals among ones", np.where(rng.random(size) < 0.5, 1e-41, noise)
    yield "blocks far apart", noise * np.repeat([1e30, 1.0, 1e-30, 1e-42, 1.0, 1e15], BLOCK)[:size]
    yield "zeros", np.where(rng.random(size) < 0.9, 0.0, noise)
    yield "all zeros of both signs", np.where(rng.random(size) < 0.5, 0.0, -0.0)
    yield "near the largest", np.full(size, 3.3e38)
    yield "some NaN", np.where(rng.random(size) < 1e-3, np.nan, noise)
    yield "NaN and infinities", np.where(rng.random(size) < 0.5, rng.choice([np.nan, np.inf, -np.inf], size), noise)
    yield "NaN in blocks of denormals", np.where(rng.random(size) < 0.01, np.nan, noise * 1e-41)


@pytest.mark.parametrize(("name", "wide"), list(adversaries()), ids=[name for name, _ in adversaries()])
def test_the_promise_holds_against_float64(name, wide):
    with np.errstate(over="ignore"):
        values = wide.astype(np.float32)
    finite = values[np.isfinite(values)].astype(np.float64)
    for tensor in (values, values[::-1], values[: BLOCK + 7]):
        measured = measure(tensor)
        finite = tensor[np.isfinite(tensor)].astype(np.float64)
        assert (measured.min, measured.max) == (finite.min(), finite.max())
        assert measured.zero == np.count_nonzero(finite == 0)
        assert measured.nan == np.count_nonzero(np.isnan(tensor))
        assert measured.norm == pytest.approx(math.sqrt(math.fsum(finite**2)), rel=PROMISE)
        mean_abs, mean = math.fsum(np.abs(finite)) / finite.size, math.fsum(finite) / finite.size
        assert abs(measured.mean - mean) <= PROMISE * mean_abs
        assert measured.mean_abs == pytest.approx(mean_abs, rel=PROMISE)
        m2 = math.fsum((finite - mean) ** 2)
        assert measured.m2 == pytest.approx(m2, rel=M2, abs=1e-13 * finite.size * mean**2)


@pytest.mark.parametrize("offset", [0, 1, 63, 64, BLOCK - 1, 10**12 + 5, 2**63 - 7])
@pytest.mark.parametrize("size", [1, 63, 200, 3 * BLOCK + 77])
def test_a_shard_starts_anywhere(offset, size):
    assert_same(random_values("f4", size), offset)


@given(
    hnp.arrays(
        st.sampled_from([np.float16, np.float32, np.float64, np.complex64, np.complex128]),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9),
    ),
    st.integers(0, 2**40),
)
@settings(deadline=None)
def test_any_floats(values, offset):
    assert_same(values, offset)


INTEGERS = hnp.integer_dtypes(endianness="=") | hnp.unsigned_integer_dtypes(endianness="=") | hnp.boolean_dtypes()


@given(hnp.arrays(INTEGERS, st.integers(0, 300)))
@settings(deadline=None)
def test_any_integers(values):
    assert_same(values)


def decoded(name, bits):
    """The value of an 8-bit pattern by the text of the formats' definitions."""
    if name == "fp8_e8m0":
        return math.nan if bits == 255 else 2.0 ** (bits - 127)
    mantissa_bits, bias = {
        "fp8_e4m3": (3, 7),
        "fp8_e5m2": (2, 15),
        "fp8_e4m3fnuz": (3, 8),
        "fp8_e5m2fnuz": (2, 16),
    }[name]
    sign, magnitude = (-1.0 if bits & 128 else 1.0), bits & 127
    if (name.endswith("fnuz") and bits == 128) or (name == "fp8_e4m3" and magnitude == 127):
        return math.nan
    if name == "fp8_e5m2" and magnitude >= 0x7C:
        return sign * math.inf if magnitude == 0x7C else math.nan
    exponent, mantissa = magnitude >> mantissa_bits, magnitude % 2**mantissa_bits
    if exponent == 0:
        return sign * mantissa * 2.0 ** (1 - bias - mantissa_bits)
    return sign * (1 + mantissa / 2**mantissa_bits) * 2.0 ** (exponent - bias)


def of_bits(name, bits):
    with np.errstate(invalid="ignore"):
        if name == "bf16":
            return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        if name == "fp16":
            return bits.view(np.float16).astype(np.float64)
    return np.array([decoded(name, int(b)) for b in bits])


def measured_bits(bits, name):
    result = arrays.measure_array(bits, EVERYTHING, form=arrays.FORMATS[name])
    assert result is not None
    return result


@pytest.mark.parametrize("name", ["bf16", "fp16", "fp8_e4m3", "fp8_e5m2", "fp8_e4m3fnuz", "fp8_e5m2fnuz", "fp8_e8m0"])
def test_every_value_of_the_narrow_formats(name):
    size = 2**16 if name in ("bf16", "fp16") else 2**8
    bits = np.arange(size, dtype=np.uint32).astype("u2" if size > 256 else "u1")
    values = of_bits(name, bits)
    for count in (1, 3, 8) if size == 256 else (1,):
        tiled = np.tile(bits, count)
        floats, counts = measured_bits(tiled, name)
        measured = Statistics(np.isfinite(values).sum() * count, *floats[:6], *counts[:4])
        with kernels.without():
            expected = measure(np.tile(values, count))
            assert_same_statistics(measured, expected, quick=True)
            assert_same_sketch(floats[6:], sketch(np.tile(values, count)), expected.norm)
            assert tuple(counts[4:].view(np.uint64).tolist()) == checksums(tiled, name)


@pytest.mark.parametrize("name", ["bf16", "fp16", "fp8_e4m3", "fp8_e8m0"])
def test_each_value_of_a_narrow_format_alone(name):
    size = 2**16 if name in ("bf16", "fp16") else 2**8
    bits = np.arange(0, size, 37 if size > 256 else 1).astype("u2" if size > 256 else "u1")
    for one, value in zip(bits, of_bits(name, bits), strict=True):
        floats, counts = measured_bits(np.array([one] * 9), name)
        assert (counts[0] == 9) == math.isnan(value)
        if math.isfinite(value):
            assert floats[:2].tolist() == [value, value]


def test_arguments_are_not_changed():
    values = random_values("f4", 5000)
    values[7] = np.nan
    before = values.copy()
    values.flags.writeable = False
    arrays.measure_array(values, EVERYTHING)
    assert np.array_equal(values.view("u4"), before.view("u4"))


@pytest.mark.parametrize(
    "values",
    [
        np.arange(5.0).astype(">f8"),
        np.zeros(3, np.longdouble),
        np.zeros(17, np.uint8)[1:].view(np.float64),
        np.zeros(3, "M8[s]"),
    ],
    ids=["byte order", "dtype", "alignment", "dates"],
)
def test_what_the_kernels_cannot_is_left_to_numpy(values):
    assert arrays.measure_array(values, arrays.STATISTICS) is None
