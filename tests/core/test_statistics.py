"""The reference statistics against naive float64 and exact arithmetic."""

import math
from fractions import Fraction

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe.core.records import STATISTICS
from msprobe.core.statistics import BLOCK, Statistics, columns, flat_blocks, measure, merge, real_elements

pytestmark = pytest.mark.usefixtures("each_path")

FIELDS = ("min", "max", "mean", "mean_abs", "m2", "norm")


def naive(values: np.ndarray) -> Statistics:
    """Measures by the definitions, exactly where float64 would not do."""
    flat = [x for pair in values.ravel() for x in ((pair.real, pair.imag) if values.dtype.kind == "c" else (pair,))]
    finite = [Fraction(int(x) if values.dtype.kind in "iub" else float(x)) for x in flat if math.isfinite(x)]
    infinities = [float(x) for x in flat if np.isinf(x)]
    counts = {
        "nan": sum(1 for x in flat if x != x),
        "pos_inf": infinities.count(math.inf),
        "neg_inf": infinities.count(-math.inf),
        "zero": sum(1 for x in flat if x == 0),
    }
    if not finite:
        return Statistics(**counts)
    mean = sum(finite, Fraction(0)) / len(finite)
    return Statistics(
        finite=len(finite),
        min=float(min(finite)),
        max=float(max(finite)),
        mean=float(mean),
        mean_abs=float(sum((abs(x) for x in finite), Fraction(0)) / len(finite)),
        m2=nearest(sum(((x - mean) ** 2 for x in finite), Fraction(0))),
        norm=nearest(exact_root(finite)),
        **counts,
    )


def exact_root(finite: list[Fraction]) -> Fraction:
    peak = max(abs(x) for x in finite) or Fraction(1)
    return Fraction(math.sqrt(sum(((x / peak) ** 2 for x in finite), Fraction(0)))) * peak


def nearest(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf


def assert_alike(measured: Statistics, expected: Statistics, relative: float = 1e-9) -> None:
    for name in ("finite", "min", "max", "nan", "pos_inf", "neg_inf", "zero"):
        assert getattr(measured, name) == pytest.approx(getattr(expected, name), rel=1e-15, abs=0, nan_ok=True), name
    scale = 0.0 if math.isnan(expected.mean_abs) else expected.mean_abs
    assert measured.mean == pytest.approx(expected.mean, rel=relative, abs=relative * scale, nan_ok=True)
    for name in ("mean_abs", "norm"):
        assert getattr(measured, name) == pytest.approx(getattr(expected, name), rel=relative, abs=0, nan_ok=True), name
    rounding = 1e-28 * (expected.norm**2 if expected.finite else 0)
    assert measured.m2 == pytest.approx(expected.m2, rel=max(1e-7, 10 * relative), abs=rounding, nan_ok=True)


MODERATE = st.floats(-1e6, 1e6, allow_subnormal=False) | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf])


@given(hnp.arrays(np.float64, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=6), elements=MODERATE))
def test_statistics_are_those_of_exact_arithmetic(values):
    assert_alike(measure(values), naive(values))


@pytest.mark.parametrize(
    "dtype",
    ["bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"],
)
def test_every_dtype(dtype):
    rng = np.random.default_rng(0)
    values = (rng.standard_normal(1000) * 40).astype("f8")
    with np.errstate(invalid="ignore"):
        typed = np.abs(values).astype(dtype) if dtype[0] in "u" else values.astype(dtype)
    if dtype[0] == "c":
        typed.imag = rng.standard_normal(1000)
    # C adds up float and narrower floats in float: the recorder promises 1e-6.
    assert_alike(measure(typed), naive(typed), 1e-6 if dtype in ("f2", "f4", "c8", "i2", "u2") else 1e-9)


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-160, 1e160, 1e300, 1.7e308])
def test_the_norm_holds_over_the_whole_range_of_fp64(scale):
    values = np.array([1.0, -0.5, 0.25, 0.0, 1.0]) * scale
    exact = naive(values)
    measured = measure(values)
    assert measured.norm == pytest.approx(exact.norm, rel=1e-12)
    assert measured.mean == pytest.approx(exact.mean, rel=1e-12)
    assert measured.mean_abs == pytest.approx(exact.mean_abs, rel=1e-12)


def test_a_norm_beyond_float64_is_infinite():
    assert measure(np.full(4, 1.7e308)).norm == math.inf


def test_the_norm_holds_between_the_extremes_of_one_tensor():
    values = np.concatenate([np.full(BLOCK, 1e-200), np.full(BLOCK, 1e200), np.full(10, 1e-300)])
    assert measure(values).norm == pytest.approx(1e200 * math.sqrt(BLOCK), rel=1e-12)


def test_m2_survives_a_mean_far_from_zero():
    values = 1e6 + np.random.default_rng(0).standard_normal(200_000) * 1e-3
    assert measure(values).m2 == pytest.approx(naive(values[:2000]).m2 * 100, rel=0.1)
    assert measure(values[:2000]).m2 == pytest.approx(naive(values[:2000]).m2, rel=1e-9)


def test_a_constant_does_not_vary():
    assert measure(np.full(100_000, 0.1)).m2 == pytest.approx(0.0, abs=1e-25)


@pytest.mark.parametrize("size", [0, 1, 63, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_sizes_around_a_block(size):
    values = np.random.default_rng(size).standard_normal(size).astype(np.float32)
    measured = measure(values)
    assert measured.finite == size
    if size:
        doubles = values.astype(np.float64)
        assert measured.norm == pytest.approx(np.linalg.norm(doubles), rel=1e-6)
        assert measured.mean == pytest.approx(doubles.mean(), abs=1e-6 * np.abs(doubles).mean())
        assert measured.m2 == pytest.approx(np.square(doubles - doubles.mean()).sum(), rel=1e-5)
        assert (measured.min, measured.max) == (values.min(), values.max())


def test_an_empty_tensor_has_no_statistics_but_counts():
    assert_alike(measure(np.empty((0, 4))), Statistics())


def test_all_nan_is_counted_and_nothing_else():
    measured = measure(np.full(7, np.nan))
    assert (measured.finite, measured.nan) == (0, 7)
    assert all(math.isnan(getattr(measured, name)) for name in FIELDS)


def test_infinities_are_counted_by_sign_and_left_out():
    measured = measure(np.array([1.0, np.inf, -np.inf, -np.inf, np.nan, 3.0]))
    assert (measured.pos_inf, measured.neg_inf, measured.nan) == (1, 2, 1)
    assert (measured.min, measured.max, measured.mean) == (1.0, 3.0, 2.0)


def test_both_zeros_are_zeros():
    assert measure(np.array([0.0, -0.0, 1e-320])).zero == 2


@pytest.mark.parametrize(("dtype", "value"), [("i8", 2**63 - 1), ("i8", -(2**63)), ("u8", 2**64 - 1)])
def test_integers_beyond_2_to_53_are_rounded_to_the_nearest_double(dtype, value):
    measured = measure(np.array([value], dtype=dtype))
    assert measured.min == measured.max == measured.mean == float(value)
    assert measured.zero == 0


@pytest.mark.parametrize(
    "view", [lambda x: x.T, lambda x: x[::2, ::3], lambda x: x[:, ::-1], lambda x: np.broadcast_to(x[0], (400, 300))]
)
def test_any_layout(view):
    values = view(np.random.default_rng(0).standard_normal((300, 300)))
    assert_alike(measure(values), measure(np.ascontiguousarray(values)), 1e-12)


@given(st.permutations(range(4)), st.integers(1, 40), st.integers(1, 100))
@settings(max_examples=50)
def test_blocks_come_in_row_major_order(axes, side, block):
    values = np.arange(2 * 3 * side).reshape(2, 3, side, 1).transpose(axes)
    blocks = list(flat_blocks(values, block))
    assert np.array_equal(np.concatenate(blocks), values.ravel())
    assert max(b.size for b in blocks) <= block


SHARD = hnp.arrays(np.float64, st.integers(0, 20), elements=MODERATE)


@given(st.lists(SHARD, min_size=1, max_size=6))
def test_merged_shards_are_the_whole(shards):
    assert_alike(merge([measure(s) for s in shards]), naive(np.concatenate(shards)))


def test_merging_nothing_is_the_empty_tensor():
    assert_alike(merge([]), Statistics())


def test_merging_means_of_opposite_extremes_does_not_overflow():
    merged = merge([measure(np.array([1.7e308])), measure(np.array([-1.7e308]))])
    assert merged.mean == 0.0
    assert merged.m2 == math.inf


def test_arguments_are_not_changed():
    values = np.array([1.0, np.nan, -2.0, 1e300])
    before = values.copy()
    values.flags.writeable = False
    measure(values)
    assert np.array_equal(values, before, equal_nan=True)


def test_complex_numbers_are_pairs():
    assert np.array_equal(real_elements(np.array([[1 + 2j], [3 - 4j]]).T), [[[1, 2], [3, -4]]])


def test_columns_have_the_names_of_records():
    table = columns([measure(np.arange(3.0)), Statistics()])
    assert set(table) == set(STATISTICS)
    assert table["norm"].dtype == np.float64
    assert table["nan"].dtype == np.int64
