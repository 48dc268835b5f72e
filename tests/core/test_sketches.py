"""Sketches are linear, additive over shards, and estimate the L2 norm as well as they promise."""

import itertools

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe.core.records import SKETCH_SIZE
from msprobe.core.sketches import (
    BLOCK,
    GROUP,
    RELATIVE_DEVIATION,
    element_signs,
    estimate_error,
    estimate_norm,
    group_signs,
    lane_signs,
    merge,
    signs,
    sketch,
)

pytestmark = pytest.mark.usefixtures("each_path")

FINITE = st.floats(-1e3, 1e3, width=32)


def assert_same_sketch(left, right, scale=1.0):
    np.testing.assert_allclose(left, right, rtol=1e-12, atol=1e-12 * scale)


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 1000, BLOCK, BLOCK + 1, 2 * BLOCK + 77])
@pytest.mark.parametrize("offset", [0, 1, 64, BLOCK - 3, 10**12 + 5])
def test_a_run_is_projected_on_the_signs_of_its_indices(size, offset):
    values = np.random.default_rng(size).standard_normal(size)
    expected = values @ signs(np.arange(offset, offset + size))
    assert_same_sketch(sketch(values, offset=offset), expected, np.linalg.norm(values))


def test_signs_are_made_of_their_three_factors():
    product = element_signs(5, 3)[:, None] * np.tile(lane_signs(), (3, 1)) * np.repeat(group_signs(5, 3), GROUP, axis=0)
    assert np.array_equal(signs(np.arange(5 * GROUP, 8 * GROUP)), product)


@given(
    hnp.arrays(np.float32, st.integers(0, 300), elements=FINITE),
    st.lists(st.integers(0, 300), max_size=5),
    st.integers(0, 2**40),
)
def test_sketches_of_contiguous_shards_add(values, cuts, offset):
    edges = sorted({0, len(values), *(c for c in cuts if c < len(values))})
    parts = [sketch(values[a:b], offset=offset + a) for a, b in itertools.pairwise(edges)]
    assert_same_sketch(merge(parts), sketch(values, offset=offset), 1e3 * 300)


@given(st.integers(1, 6), st.integers(1, 40), st.integers(1, 40))
def test_sketches_of_shards_along_any_dimension_add(shards, rows, columns):
    whole = np.random.default_rng(rows).standard_normal((rows, columns))
    where = np.arange(whole.size).reshape(whole.shape)
    pieces = zip(np.array_split(whole, shards, axis=1), np.array_split(where, shards, axis=1), strict=True)
    assert_same_sketch(merge(sketch(x, runs=(i.ravel(), 1)) for x, i in pieces), sketch(whole), 40.0)


def test_a_sketch_is_linear():
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((2, 5000))
    assert_same_sketch(sketch(x) - sketch(y), sketch(x - y), 100.0)


def test_equal_tensors_have_error_0_and_others_have_not():
    x = np.random.default_rng(1).standard_normal(5000)
    changed = x.copy()
    changed[777] += 1e-6
    assert estimate_error(sketch(x), sketch(x.copy())) == 0
    assert estimate_error(sketch(changed), sketch(x)) == pytest.approx(1e-6, rel=1e-6)


def test_a_permutation_shows():
    x = np.random.default_rng(1).standard_normal(5000)
    assert estimate_error(sketch(x[::-1]), sketch(x)) == pytest.approx(np.linalg.norm(x[::-1] - x), rel=0.5)


def cases():
    rng = np.random.default_rng(7)
    size = 4096
    yield "noise", lambda: rng.standard_normal(size)
    yield "constant", lambda: np.ones(size)
    yield "outer product", lambda: np.outer(rng.standard_normal(64), rng.standard_normal(64)).ravel()
    yield "one row", lambda: np.where(np.arange(size) // 64 == 5, 1.0, 0.0)
    yield "two elements", lambda: np.where(np.arange(size) % 64 == 0, np.arange(size) < 128, 0.0)
    yield "one column", lambda: np.where(np.arange(size) % 64 == 9, rng.standard_normal(size), 0.0)
    yield "heavy tail", lambda: rng.standard_t(1.5, size)


@pytest.mark.parametrize(("name", "make"), list(cases()), ids=[name for name, _ in cases()])
def test_the_estimate_has_the_variance_it_promises(name, make):
    ratios = []
    for draw in range(400):
        x = make()
        ratios.append(estimate_norm(sketch(x, offset=draw * 64 * 640)) ** 2 / np.square(x).sum())
    # Standard error of the mean of 400 draws of relative deviation 1/2, and room for 4 of them.
    assert np.mean(ratios) == pytest.approx(1.0, abs=4 * 0.5 / 20)
    assert np.std(ratios) < 0.5 * 1.25


def test_the_stated_deviation_is_that_of_eight_projections():
    assert pytest.approx(0.25) == RELATIVE_DEVIATION
    assert SKETCH_SIZE == 8


def test_signs_are_balanced_and_projections_uncorrelated():
    table = signs(np.arange(2**16))
    products = table.T @ table / len(table)
    assert np.abs(table.mean(axis=0)).max() < 5 / 256
    assert np.abs(products - np.eye(SKETCH_SIZE)).max() < 5 / 256


def test_estimates_work_on_tables_and_say_nan_for_absent():
    table = np.array([sketch(np.arange(5.0)), np.full(SKETCH_SIZE, np.nan), np.zeros(SKETCH_SIZE)])
    estimates = estimate_error(table, np.array([sketch(np.arange(5.0)), table[0], table[2]]))
    assert estimates[0] == 0
    assert np.isnan(estimates[1])
    assert estimates[2] == 0


def test_nonfinite_elements_count_as_zero():
    values = np.array([1.0, np.nan, np.inf, -np.inf, 2.0])
    assert_same_sketch(sketch(values), sketch(np.array([1.0, 0, 0, 0, 2.0])))


def test_complex_numbers_are_pairs():
    values = np.array([1 + 2j, 3 - 4j])
    assert_same_sketch(sketch(values), sketch(np.array([1.0, 2, 3, -4])))


@pytest.mark.parametrize("scale", [1e-310, 1.7e308])
def test_a_sketch_of_fp64_extremes_holds_no_nan(scale):
    values = np.random.default_rng(0).uniform(-1, 1, 3 * BLOCK) * scale
    assert not np.isnan(sketch(values)).any()


def test_a_sketch_survives_overflow_on_the_way():
    values = np.array([1.7e308] * 8 + [0.0] * 56)
    exact = values / 2**10 @ signs(np.arange(64))
    with np.errstate(over="ignore"):
        expected = exact * 2.0**10
    np.testing.assert_allclose(sketch(values), expected, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u8", "bool"])
def test_every_dtype(dtype):
    values = np.random.default_rng(0).integers(0, 2, 500).astype(dtype)
    assert_same_sketch(sketch(values), values.astype(np.float64) @ signs(np.arange(500)))


def test_a_zero_dimensional_tensor_has_one_element():
    assert_same_sketch(sketch(np.array(3.0)), 3 * signs(np.arange(1))[0])


def test_the_definition_never_changes():
    """Sketches of recorded runs are compared with those of later versions."""
    assert signs(np.array([0, 1, 63, 64, 10**12])).astype(int).tolist() == PINNED_SIGNS


PINNED_SIGNS = [
    [-1, 1, 1, 1, -1, 1, 1, -1],
    [1, 1, -1, 1, -1, 1, -1, -1],
    [1, 1, -1, 1, 1, -1, -1, -1],
    [1, 1, -1, 1, 1, 1, -1, -1],
    [1, -1, 1, 1, -1, 1, -1, 1],
]
