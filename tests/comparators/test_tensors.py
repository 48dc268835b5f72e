"""What every comparator of tensors must do, and the values of each on small cases."""

import math

import numpy as np
import pytest

from msprobe.comparators.cosine import Cosine
from msprobe.comparators.l2_relative import L2Relative
from msprobe.comparators.max_abs import MaxAbs
from msprobe.comparators.max_relative import MaxRelative
from msprobe.comparators.mean_relative import MeanRelative
from msprobe.comparators.nonfinite_pattern import NonfinitePattern
from msprobe.comparators.sqnr import Sqnr
from msprobe.comparators.ulp import Ulp, UlpMean
from msprobe.comparators.within import WITHIN_1E_3, WITHIN_5E_3
from msprobe.core import kernels
from msprobe.core.measures import BLOCK, MeasuredPair
from msprobe.core.protocols import Comparator, PairComparator

ALL = [
    MaxAbs(),
    MaxRelative(),
    MeanRelative(),
    Cosine(),
    L2Relative(),
    Ulp(),
    UlpMean(),
    WITHIN_1E_3,
    WITHIN_5E_3,
    Sqnr(),
    NonfinitePattern(),
]
PERFECT = {"cosine": 1.0, "within_1e_3": 1.0, "within_5e_3": 1.0, "sqnr": math.inf}
#: What each gives for the empty tensor, a pair of zeros, a zero reference only, and NaN alike on both sides only.
SPECIAL = {
    "max_abs": (math.nan, 0.0, 1.0, math.nan),
    "max_relative": (math.nan, 0.0, math.inf, math.nan),
    "mean_relative": (math.nan, 0.0, math.inf, math.nan),
    "cosine": (math.nan, math.nan, math.nan, math.nan),
    "l2_relative": (math.nan, 0.0, math.inf, math.nan),
    "ulp": (math.nan, 0.0, math.inf, math.nan),
    "ulp_mean": (math.nan, 0.0, math.inf, math.nan),
    "within_1e_3": (math.nan, 1.0, 0.0, 1.0),
    "within_5e_3": (math.nan, 1.0, 0.0, 1.0),
    "sqnr": (math.nan, math.nan, -math.inf, math.nan),
    "nonfinite_pattern": (math.nan, 0.0, 0.0, 0.0),
}
each = pytest.mark.parametrize("comparator", ALL, ids=lambda c: c.name)


def array(*values):
    return np.array(values, np.float64)


def assert_measure(measured, expected):
    assert measured == pytest.approx(expected, rel=1e-12, nan_ok=True)


@each
def test_it_keeps_the_promise_of_the_protocol(comparator):
    assert isinstance(comparator, Comparator)
    assert comparator.better in ("lower", "higher")
    assert comparator.formula
    assert comparator.source


@pytest.mark.skipif(not kernels.available(), reason=f"kernels: {kernels.status()}")
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i4"])
def test_all_of_them_take_their_numbers_from_one_pass(dtype):
    rng = np.random.default_rng(0)
    candidate, reference = ((rng.standard_normal(3000) * 50).astype(dtype) for _ in range(2))
    alone = [comparator.compare(candidate, reference) for comparator in ALL]
    pair = MeasuredPair(candidate, reference)
    assert pair.sums is not None
    if dtype[0] == "i":  # distances of integers are the differences themselves
        alone = [value for comparator, value in zip(ALL, alone, strict=True) if "ulp" not in comparator.name]
    else:
        candidate[:] = reference  # whoever reads the tensors again sees equal ones
    assert all(isinstance(comparator, PairComparator) for comparator in ALL)
    taken = [c.compare_pair(pair) for c in ALL if dtype[0] != "i" or "ulp" not in c.name]
    assert taken == alone


@each
def test_equal_tensors_are_perfect(comparator):
    values = np.random.default_rng(0).standard_normal((3, 50))
    assert comparator.compare(values, values.copy()) == PERFECT.get(comparator.name, 0.0)


@each
@pytest.mark.parametrize(
    ("candidate", "reference"),
    [
        (array(1, math.inf, 2), array(1, -math.inf, 2)),
        (array(1, math.nan, 2), array(1, math.inf, 2)),
        (array(1, math.nan, 2), array(1, 5, 2)),
        (array(1, 5, 2), array(1, math.inf, 2)),
        (array(1, math.nan, 2), array(math.nan, 1, 2)),
    ],
    ids=["opposite infinities", "NaN for Inf", "NaN for a number", "a number for Inf", "NaN elsewhere"],
)
def test_unlike_nonfinite_elements_are_no_match(comparator, candidate, reference):
    for measured in (comparator.compare(candidate, reference), comparator.compare(reference, candidate)):
        assert measured != PERFECT.get(comparator.name, 0.0)


@each
def test_like_nonfinite_elements_are_left_out(comparator):
    values = array(1, math.nan, math.inf, -math.inf, 2)
    assert comparator.compare(values, values.copy()) == PERFECT.get(comparator.name, 0.0)


@each
@pytest.mark.parametrize(
    ("case", "candidate", "reference"),
    [
        (0, np.empty((0, 3)), np.empty((0, 3))),
        (1, array(0, 0), array(0, 0)),
        (2, array(1, 1), array(0, 0)),
        (3, array(math.nan, math.inf), array(math.nan, math.inf)),
    ],
    ids=["empty", "zeros", "zero reference", "nothing finite"],
)
def test_special_cases_are_as_stated(comparator, case, candidate, reference):
    assert_measure(comparator.compare(candidate, reference), SPECIAL[comparator.name][case])


@each
def test_a_zero_dimensional_pair_is_one_element(comparator):
    one = np.array(2.0)
    assert comparator.compare(one, one.copy()) == PERFECT.get(comparator.name, 0.0)


@each
@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c8", "i4", "u8", "bool"])
def test_arguments_are_not_changed(comparator, dtype):
    candidate, reference = np.array([[1, 0], [1, 1]], dtype), np.array([[1, 0], [0, 1]], dtype)
    before = candidate.copy(), reference.copy()
    for side in (candidate, reference):
        side.flags.writeable = False
    comparator.compare(candidate, reference)
    assert np.array_equal(candidate, before[0])
    assert np.array_equal(reference, before[1])


@each
def test_other_shapes_are_refused(comparator):
    with pytest.raises(ValueError, match=r"shapes \(2,\) and \(1, 2\)"):
        comparator.compare(array(1, 2), array(1, 2)[None])


@each
def test_layout_does_not_matter(comparator):
    x, y = np.random.default_rng(0).standard_normal((2, 40, 50))
    assert_measure(comparator.compare(np.asfortranarray(x), y), comparator.compare(x, y))


@each
def test_blocks_do_not_matter(comparator):
    rng = np.random.default_rng(0)
    x = rng.uniform(1, 2, BLOCK + 100)
    y = x + rng.standard_normal(x.size) * 1e-3
    halves = [comparator.compare(x[s], y[s]) for s in (slice(0, BLOCK), slice(BLOCK, None))]
    whole = comparator.compare(x, y)
    assert min(halves) - 1e-12 <= whole <= max(halves) + 1e-12


VALUES = [
    (MaxAbs(), [1, 2, 3], [1, 2.5, 3], 0.5),
    (MaxRelative(), [1, 2, 3], [1, 2.5, 4], 0.25),
    (MeanRelative(), [1, 2, 3], [1, 2.5, 4], 0.15),
    (Cosine(), [1, 0], [1, 1], math.sqrt(0.5)),
    (Cosine(), [1, 2], [-2, -4], -1),
    (Cosine(), [1e200, 2e200], [2e-200, 4e-200], 1),
    (L2Relative(), [3, 4], [0, 4], 0.75),
    (L2Relative(), [1e200, 2e200], [1e200, 1e200], math.sqrt(0.5)),
    (L2Relative(), [2e-200, 1e-200], [1e-200, 1e-200], math.sqrt(0.5)),
    (Sqnr(), [1.1, 1.1], [1, 1], 20),
    (WITHIN_1E_3, [1.0005, 2.004, 0, 1], [1, 2, 0, 0], 0.5),
    (WITHIN_5E_3, [1.0005, 2.004, 0, 1], [1, 2, 0, 0], 0.75),
    (NonfinitePattern(), [1, math.nan, math.inf, 1], [1, math.nan, -math.inf, math.nan], 0.5),
]


@pytest.mark.parametrize(("comparator", "candidate", "reference", "expected"), VALUES)
def test_values(comparator, candidate, reference, expected):
    assert comparator.compare(array(*candidate), array(*reference)) == pytest.approx(expected, rel=1e-9)


def test_half_precision_is_measured_in_double():
    x = np.full(100_000, 300, np.float16)
    assert Cosine().compare(x, x) == 1.0
    assert L2Relative().compare(x + np.float16(1), x) == pytest.approx(1 / 300)


def test_large_integers_differ_exactly():
    x = np.array([2**63 - 1, -(2**63)], np.int64)
    assert MaxAbs().compare(x - np.array([1, -1]), x) == 1.0
    assert MaxAbs().compare(x, x[::-1].copy()) == 2.0**64
    assert MaxAbs().compare(np.array([2**64 - 1], np.uint64), np.array([-1])) == 2.0**64
    assert Ulp().compare(x - np.array([1, -1]), x) == 1.0


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
@pytest.mark.parametrize("value", [1.0, 1.5, -3.25, 2.0**-10, 0.0])
def test_neighbours_are_one_unit_apart(dtype, value):
    reference = np.array([value], dtype)
    neighbour = np.nextafter(reference, np.array(np.inf, dtype))
    assert Ulp().compare(neighbour, reference) in (1.0, 0.5)


@pytest.mark.parametrize(
    ("formats", "unit"), [(("bf16", "fp32"), 2.0**-7), (("fp32", "fp16"), 2.0**-10), (("fp8_e4m3", "bf16"), 2.0**-3)]
)
def test_units_are_of_the_coarser_format(formats, unit):
    assert Ulp().compare(array(1 + 3 * unit), array(1), formats) == 3.0


def test_units_do_not_shrink_below_the_smallest_normal_number():
    assert Ulp().compare(array(3 * 2.0**-133), array(0), ("bf16", "bf16")) == 3.0
