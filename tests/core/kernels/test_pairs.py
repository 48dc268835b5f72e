"""Comparing two tensors in one pass of C gives what the definitions in NumPy give."""

import dataclasses
import itertools
import math

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe.core import kernels
from msprobe.core.kernels.library import current
from msprobe.core.measures import pair_blocks, pair_measures, pair_sums, relative_differences

pytestmark = pytest.mark.skipif(not kernels.available(), reason=f"kernels: {kernels.status()}")

DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "f2", "f4", "f8"]


@pytest.fixture(params=["baseline", "avx2", "avx512"], autouse=True, scope="module")
def instructions(request):
    library = current()
    assert library is not None
    best = library.instructions()
    if not library.choose(request.param.encode()):
        pytest.skip(f"no {request.param} here")
    yield
    library.choose(best)


def assert_same(candidate, reference, tolerance=1e-3):
    measured = pair_measures(candidate, reference)
    with kernels.without():
        expected = pair_measures(candidate, reference)
    for field in dataclasses.fields(expected):
        name = field.name
        assert getattr(measured, name) == pytest.approx(getattr(expected, name), rel=1e-12, abs=0), name
    sums = pair_sums(candidate, reference, tolerances=(tolerance, 2 * tolerance))
    if sums is not None and candidate.size:
        assert_same_relative(sums, list(pair_blocks(candidate, reference)), tolerance)


def assert_same_relative(sums, blocks, tolerance):
    relative = np.concatenate([relative_differences(b) for b in blocks])
    difference = np.concatenate([np.abs(b.difference) for b in blocks])
    x, y = (np.concatenate([getattr(b, side) for b in blocks]) for side in ("candidate", "reference"))
    assert sums.max_relative == pytest.approx(relative.max(initial=0.0), rel=1e-12)
    assert sums.sum_relative == pytest.approx(relative.sum(), rel=1e-9)
    for within, allowed in zip(sums.within, (tolerance, 2 * tolerance), strict=True):
        assert within == np.count_nonzero(difference <= allowed * np.abs(y))
    assert sums.product == pytest.approx(x @ y, rel=1e-9, abs=float(1e-9 * np.linalg.norm(x) * np.linalg.norm(y)))


def pair_of(dtypes, size, seed=0):
    rng = np.random.default_rng(seed)
    first = np.abs(rng.standard_normal(size) * 30)
    second = np.where(rng.random(size) < 0.3, first, first + rng.standard_normal(size))
    return tuple(np.abs(x).astype(dtype) for x, dtype in zip((first, second), dtypes, strict=True))


@pytest.mark.parametrize("dtypes", list(itertools.product(DTYPES, DTYPES)), ids="-".join)
def test_every_pair_of_formats(dtypes):
    assert pair_sums(*pair_of(dtypes, 10)) is not None
    assert_same(*pair_of(dtypes, 3000))


@pytest.mark.parametrize(
    "dtypes", [("c8", "c8"), ("c16", "c8"), ("c8", "f4"), ("i8", "i8"), ("u8", "i4"), ("f4", "i8")]
)
def test_complex_numbers_and_what_is_left_to_numpy(dtypes):
    assert_same(*pair_of(dtypes, 300))


@pytest.mark.parametrize("size", [0, 1, 7, 2047, 2048, 2049, 300_001])
def test_sizes(size):
    assert_same(*pair_of(("f4", "f4"), size))


@pytest.mark.parametrize("view", [np.transpose, lambda x: x[::2, 1:], lambda x: x[0, 0], lambda x: x[:0]])
def test_layouts(view):
    x, y = (side.reshape(30, 50) for side in pair_of(("f4", "f8"), 1500))
    assert_same(np.asarray(view(x)), np.asarray(view(y)))


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8"])
def test_nonfinite_elements_are_alike_or_unlike(dtype):
    x, y = pair_of((dtype, dtype), 5000)
    for start, (left, right) in enumerate(itertools.product([np.nan, np.inf, -np.inf, 1.0], repeat=2)):
        x[start:2500:31], y[start:2500:31] = left, right
    assert_same(x, y)


@pytest.mark.parametrize("scale", [5e-324, 1e-310, 1e-200, 1e-130, 1e130, 1e200, 1.7e308])
def test_the_range_of_fp64(scale):
    x, y = (side / 200 * scale for side in pair_of(("f8", "f8"), 3000))
    assert_same(x, y)
    assert_same(x, x)
    assert_same(x, -x)


def test_signs_of_zero():
    zeros = np.zeros(3000)
    assert_same(zeros, -zeros)
    assert not pair_measures(zeros, -zeros).equal
    assert pair_measures(zeros, zeros).equal


FLOATS = st.sampled_from([np.float16, np.float32, np.float64])


@given(st.data(), hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=8))
@settings(deadline=None)
def test_any_floats(data, shape):
    x, y = (data.draw(hnp.arrays(data.draw(FLOATS), shape)) for _ in range(2))
    assert_same(x, y, data.draw(st.sampled_from([0.0, 1e-3, 0.5])))


@pytest.mark.parametrize(("bits", "smallest"), [(24, -126), (8, -126), (53, -300), (11, -14)])
def test_distances_are_in_units_of_the_last_place(bits, smallest):
    reference = np.array([1.0, 1.5, -2.0, 1e-3, 0.0, 2.0**-130, 7e4])
    for i, y in enumerate(reference):
        exponent = max(math.frexp(y)[1] - 1 if y else smallest, smallest)
        candidate = reference.copy()
        candidate[i] = y + 3 * 2.0 ** (exponent - 20)
        sums = pair_sums(candidate, reference, smallest_exponent=smallest)
        assert sums is not None
        assert sums.max_distance == sums.sum_distance == 3 * 2.0**-20


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="shapes"):
        pair_measures(np.ones(2), np.ones(3))
