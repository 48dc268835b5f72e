"""Statistics, sketches and checksums of parts give those of the whole."""

import itertools

import numpy as np
import pytest

from msprobe.core import statistics
from msprobe.core.checksums import checksums_of
from msprobe.core.combining import Groups, add_checksums, add_sketches, combine_statistics
from msprobe.core.sketches import sketch


def columns_of(parts):
    return statistics.columns([statistics.measure(part) for part in parts]), np.array([part.size for part in parts])


def pieces(seed):
    """Two wholes in pieces of uneven size: ordinary numbers, and hard ones."""
    ordinary = np.random.default_rng(seed).normal(3.0, 1e-3, 1000)
    hard = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e300, -3.0, 1e-300, 7.0])
    return [ordinary, hard], [ordinary[:10], hard[:3], ordinary[10:700], hard[3:], ordinary[700:]]


def test_statistics_of_parts_are_those_of_the_whole():
    wholes, parts = pieces(0)
    columns, elements = columns_of(parts)
    found = combine_statistics(columns, elements, Groups.of(np.array([0, 1, 0, 1, 0])))
    expected, _ = columns_of(wholes)
    for name, column in expected.items():
        np.testing.assert_allclose(found[name], column, rtol=1e-12, err_msg=name)


def test_a_whole_without_finite_elements_has_no_mean():
    columns, elements = columns_of([np.array([np.nan]), np.array([np.inf, np.nan])])
    found = combine_statistics(columns, elements, Groups.of(np.array([0, 0])))
    assert np.isnan([found[name][0] for name in ("min", "max", "mean", "mean_abs", "m2", "norm")]).all()
    assert (found["nan"][0], found["pos_inf"][0]) == (2, 1)


def test_sketches_and_checksums_keyed_by_the_whole_add_up():
    whole = np.random.default_rng(1).normal(size=300).astype(np.float32)
    offsets = np.array([0, 100, 130, 300])
    runs = list(itertools.pairwise(offsets))
    groups = Groups.of(np.zeros(3, dtype=np.int64))
    sketches = np.stack([sketch(whole[a:b], offset=int(a)) for a, b in runs])
    np.testing.assert_allclose(add_sketches(sketches, groups)[0], sketch(whole), rtol=1e-12)
    sums = np.array([checksums_of(whole[a:b], offset=int(a)) for a, b in runs], dtype=np.uint64)
    assert add_checksums(sums, groups)[0].tolist() == list(checksums_of(whole))


def test_no_wholes_give_empty_columns():
    columns, elements = columns_of([np.ones(3)])
    none = Groups(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))
    assert all(len(column) == 0 for column in combine_statistics(columns, elements, none).values())


@pytest.mark.parametrize("first", [np.nan, 1.0])
def test_a_missing_sketch_stays_missing(first):
    total = add_sketches(np.array([[first] * 8, [np.inf] * 8, [-np.inf] * 8]), Groups.of(np.zeros(3, dtype=np.int64)))
    assert np.isnan(total).all() if np.isnan(first) else np.isposinf(total).all()
