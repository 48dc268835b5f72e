"""What the verdict measures on a pair of saved tensors."""

import math
import tracemalloc

import numpy as np
import pytest

from msprobe.core.measures import BLOCK, pair_measures, root_of_squares

pytestmark = pytest.mark.usefixtures("each_path")


def test_values():
    measured = pair_measures(np.array([1.0, 2.0, 7.0]), np.array([1.0, 5.0, 3.0]))
    assert measured.l2_difference == 5.0
    assert measured.l2_reference == pytest.approx(math.sqrt(35))
    assert measured.max_abs == 4.0
    assert (measured.flips, measured.equal, measured.nonfinite_differs) == (2, False, False)


@pytest.mark.parametrize("dtype", ["f4", "f2", "i8", "u1", "bool", "c8"])
def test_a_tensor_equals_itself(dtype):
    values = np.array([0, 1, 1, 0], dtype)
    measured = pair_measures(values, values.copy())
    assert measured.equal
    assert measured.l2_difference == measured.flips == 0


def test_nan_alike_is_equal_and_unlike_is_not():
    values = np.array([1.0, np.nan, np.inf])
    assert pair_measures(values, values).equal
    unlike = pair_measures(values, np.array([1.0, np.nan, -np.inf]))
    assert unlike.nonfinite_differs
    assert not unlike.equal
    assert (unlike.l2_difference, unlike.flips, unlike.unlike) == (0.0, 1, 1)


def test_minus_zero_does_not_equal_zero_but_differs_by_nothing():
    measured = pair_measures(np.array([-0.0]), np.array([0.0]))
    assert not measured.equal
    assert (measured.l2_difference, measured.flips) == (0.0, 0)


def test_empty_tensors_are_equal():
    assert pair_measures(np.empty(0), np.empty(0)).equal


def test_flips_of_discrete_values_are_counted():
    assert pair_measures(np.array([1, 2, 3]), np.array([1, 3, 4])).flips == 2


def test_extremes_of_fp64():
    largest = np.array([1.7e308])
    assert pair_measures(largest, largest).l2_reference == 1.7e308
    assert pair_measures(largest, -largest).l2_difference == math.inf
    assert pair_measures(largest * 1e-308 * 1e-308, 0 * largest).l2_difference == pytest.approx(1.7e-308)


def test_other_formats_are_compared_by_value():
    assert pair_measures(np.array([0.5], np.float16), np.array([0.5], np.float64)).equal
    assert not pair_measures(np.array([0.1], np.float16), np.array([0.1], np.float64)).equal


def test_mixed_complex_and_real():
    assert pair_measures(np.array([1.0]), np.array([1 + 0j])).equal


@pytest.mark.parametrize("size", [1, BLOCK, 3 * BLOCK + 5])
def test_the_norm_does_not_depend_on_blocks(size):
    x, y = np.random.default_rng(0).standard_normal((2, size)).astype(np.float32)
    exact = np.linalg.norm(x.astype(np.float64) - y.astype(np.float64))
    assert pair_measures(x, y).l2_difference == pytest.approx(exact, rel=1e-12)


def test_memory_stays_flat():
    values = np.zeros(16 * BLOCK, np.float32)
    tracemalloc.start()
    pair_measures(values, values)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * 8 * BLOCK


def test_a_root_of_squares_with_an_infinity_is_infinite():
    assert root_of_squares(np.array([1.0, math.inf])) == math.inf
