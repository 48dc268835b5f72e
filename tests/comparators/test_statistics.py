"""Comparators of recorded statistics, over many pairs at once."""

import math

import numpy as np
import pytest

from msprobe.comparators.checksum_equal import ChecksumEqual
from msprobe.comparators.statistics_difference import MAX_DIFFERENCE, MEAN_DIFFERENCE, MIN_DIFFERENCE, NormRelative
from msprobe.core.protocols import StatisticsComparator
from msprobe.core.statistics import columns, measure

DIFFERENCES = [NormRelative(), MEAN_DIFFERENCE, MAX_DIFFERENCE, MIN_DIFFERENCE]
each = pytest.mark.parametrize("comparator", DIFFERENCES, ids=lambda c: c.name)


def statistics(*tensors):
    return columns([measure(np.array(t, np.float64)) for t in tensors])


@pytest.mark.parametrize("comparator", [*DIFFERENCES, ChecksumEqual()], ids=lambda c: c.name)
def test_it_keeps_the_promise_of_the_protocol(comparator):
    assert isinstance(comparator, StatisticsComparator)
    assert comparator.better in ("lower", "higher")
    assert comparator.formula
    assert comparator.source


@pytest.mark.parametrize(
    ("comparator", "expected"),
    list(zip(DIFFERENCES, [1 / 3, 1.0, 3.0, 1.0], strict=True)),
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_values(comparator, expected):
    candidate, reference = statistics([-1, 1, 1, 1]), statistics([0, 0, 0, 0])
    candidate["norm"], reference["norm"] = np.array([4.0]), np.array([3.0])
    candidate["mean"], candidate["max"], candidate["min"] = np.array([1.0]), np.array([3.0]), np.array([-1.0])
    assert comparator.compare_statistics(candidate, reference) == pytest.approx([expected])


@each
def test_equal_statistics_differ_by_0_and_one_pair_does_not_touch_another(comparator):
    table = statistics([1, 2], [0, 0], [math.nan, 1])
    assert comparator.compare_statistics(table, table).tolist() == [0, 0, 0]


@each
def test_opposite_infinities_are_no_match(comparator):
    measured = comparator.compare_statistics(statistics([1, math.inf, 2]), statistics([1, -math.inf, 2]))
    assert measured.tolist() == [math.inf]


@each
def test_a_side_without_a_finite_element_against_one_with_is_no_match(comparator):
    measured = comparator.compare_statistics(statistics([math.nan, math.nan]), statistics([1, 2]))
    assert measured.tolist() == [math.inf]


@each
def test_what_was_not_measured_or_is_empty_is_nan(comparator):
    absent = {name: np.array([math.nan]) for name in ("min", "max", "mean", "norm", "nan", "pos_inf", "neg_inf")}
    assert np.isnan(comparator.compare_statistics(absent, statistics([1, 2]))).all()
    assert np.isnan(comparator.compare_statistics(statistics([]), statistics([]))).all()


def test_a_zero_norm_of_the_reference_only_is_infinitely_far():
    assert NormRelative().compare_statistics(statistics([1]), statistics([0])).tolist() == [math.inf]


@each
def test_arguments_are_not_changed(comparator):
    table = statistics([1, 2])
    for column in table.values():
        column.flags.writeable = False
    comparator.compare_statistics(table, table)


def test_checksums_are_equal_unequal_or_absent():
    candidate = {"checksum": np.array([5, 5, 5], np.uint64), "has_checksum": np.array([True, True, False])}
    reference = {"checksum": np.array([5, 6, 5], np.uint64), "has_checksum": np.array([True, True, True])}
    measured = ChecksumEqual().compare_statistics(candidate, reference)
    np.testing.assert_array_equal(measured, [1.0, 0.0, math.nan])
