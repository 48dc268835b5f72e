"""Row statistics against the statistics and sketches of each row alone."""

import numpy as np
import pytest

from msprobe.core.row_statistics import ROW_COLUMNS, measure_rows
from msprobe.core.sketches import sketch
from msprobe.core.statistics import measure


def assert_rows(values, rows):
    measured = measure_rows(values)
    assert tuple(measured) == ROW_COLUMNS
    assert len(measured["norm"]) == len(rows)
    for i, row in enumerate(rows):
        expected = measure(row)
        norm = 0.0 if np.isnan(expected.norm) else expected.norm
        assert measured["norm"][i] == pytest.approx(norm, rel=1e-12)
        assert measured["mean"][i] == pytest.approx(expected.mean, rel=1e-9, abs=1e-12 * norm, nan_ok=True)
        peak = np.fmax(-expected.min, expected.max)
        assert measured["max_abs"][i] == pytest.approx(peak, nan_ok=True)
        assert measured["nonfinite"][i] == expected.nan + expected.pos_inf + expected.neg_inf
        projections = [measured["projection_0"][i], measured["projection_1"][i]]
        np.testing.assert_allclose(projections, sketch(row)[:2], rtol=1e-9, atol=1e-12 * norm)


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 70), (1, 1), (4, 1), (2000, 100)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2"])
def test_rows_are_those_of_the_last_dimension(shape, dtype):
    values = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    rows = values.reshape(-1, shape[-1])
    assert_rows(values, rows) if len(rows) < 100 else assert_rows(values[:50], rows[:50])


def test_many_rows_are_measured_in_blocks_alike():
    values = np.random.default_rng(0).standard_normal((3000, 50))
    whole, part = measure_rows(values), measure_rows(values[2990:])
    for name in ROW_COLUMNS:
        np.testing.assert_allclose(whole[name][2990:], part[name], rtol=1e-12, atol=1e-14)


def test_nonfinite_elements_are_counted_and_left_out():
    values = np.array([[1.0, np.nan, 3.0], [np.inf, -np.inf, np.nan], [0.0, 0.0, 0.0]])
    assert_rows(values, values)


def test_a_vector_is_one_row_and_a_scalar_too():
    assert_rows(np.arange(4.0), [np.arange(4.0)])
    assert_rows(np.array(3.0), [np.array([3.0])])


def test_complex_rows_are_twice_as_long():
    values = np.array([[1 + 2j, 3j], [0j, 1 + 0j]])
    assert_rows(values, values)


@pytest.mark.parametrize("shape", [(0, 4), (0,), (3, 0)])
def test_empty_tensors_have_the_rows_that_their_shape_says(shape):
    measured = measure_rows(np.empty(shape))
    assert len(measured["norm"]) == int(np.prod(shape[:-1]))
    assert measured["nonfinite"].sum() == 0


def test_extremes_of_fp64_neither_overflow_nor_vanish():
    measured = measure_rows(np.array([[1e300, 1e300], [1e-310, 1e-310]]))
    np.testing.assert_allclose(measured["norm"], np.sqrt(2) * np.array([1e300, 1e-310]), rtol=1e-9)
