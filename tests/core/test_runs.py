"""Sketches and checksums of a part are keyed by the index in the whole tensor, so that those of all parts add up."""

import itertools

import numpy as np
import pytest

from msprobe.core.checksums import checksums, checksums_of
from msprobe.core.placement import Layout
from msprobe.core.runs import indices_in_blocks, real_runs
from msprobe.core.sketches import merge, sketch

pytestmark = pytest.mark.usefixtures("each_path")

SHAPE = (12, 10, 48)


def layouts():
    """Name -> the parts of one tensor."""
    whole = Layout.whole(SHAPE)

    def parts(dim, count, start=whole):
        return [start.shard("tp", dim, coordinate=i, parts=count) for i in range(count)]

    yield "first", parts(0, 5)
    yield "middle", parts(1, 3)
    yield "last", parts(2, 4)
    yield "unaligned", [whole.shard("tp", 2, coordinate=i, parts=(7, 1, 40)) for i in range(3)]
    yield "two", [part for first in parts(0, 2) for part in parts(2, 3, first)]
    yield "fused", [whole.shard("tp", 2, coordinate=i, parts=2, blocks=(16, 8, 24)) for i in range(2)]
    zigzag = (((0, 2), (10, 2)), ((2, 2), (8, 2)), ((4, 4),))
    yield "zigzag", [Layout(SHAPE, (pieces, ((0, 10),), ((0, 48),))) for pieces in zigzag]
    size = int(np.prod(SHAPE))
    cuts = (0, 1, 700, 701, 4000, size)
    yield "flat", [Layout(SHAPE, flat=(a, b - a)) for a, b in itertools.pairwise(cuts)]


@pytest.mark.parametrize(("name", "parts"), list(layouts()), ids=[name for name, _ in layouts()])
@pytest.mark.parametrize("dtype", ["f4", "f2", "f8", "i8", "u1", "c8"])
def test_parts_of_every_kind_of_split_add_up_to_the_whole(name, parts, dtype):
    rng = np.random.default_rng(0)
    # Small integers, so that sums are exact in any order.
    whole = rng.integers(0, 100, SHAPE).astype(dtype)
    locals_ = [whole.reshape(-1)[where_of(part)] for part in parts]
    assert sum(local.size for local in locals_) == whole.size
    found = [checksums_of(local, runs=part.runs()) for local, part in zip(locals_, parts, strict=True)]
    assert tuple(sum(sums) % 2**64 for sums in zip(*found, strict=True)) == checksums_of(whole)
    sketches = [sketch(local, runs=part.runs()) for local, part in zip(locals_, parts, strict=True)]
    assert np.array_equal(merge(sketches), sketch(whole))


def where_of(part):
    starts, length = part.runs()
    return (starts[:, None] + np.arange(length)).ravel()


@pytest.mark.parametrize("length", [1, 2, 63, 64, 65, 1000, 5000])
@pytest.mark.parametrize("first", [0, 5, 2**40 + 3])
def test_runs_of_any_length_from_anywhere(length, first):
    starts = first + np.random.default_rng(0).permutation(40) * (length + 3)
    values = np.random.default_rng(1).integers(-50, 50, 40 * length).astype(np.float32)
    values[3::17] = np.nan
    one_by_one = [(values[i * length : (i + 1) * length], int(start)) for i, start in enumerate(starts)]
    expected = [checksums_of(run, offset=start) for run, start in one_by_one]
    assert checksums_of(values, runs=(starts, length)) == tuple(sum(s) % 2**64 for s in zip(*expected, strict=True))
    sketches = [sketch(run, offset=start) for run, start in one_by_one]
    assert np.array_equal(sketch(values, runs=(starts, length)), merge(sketches))


def test_a_part_may_lie_in_any_layout():
    whole = np.random.default_rng(0).integers(0, 9, (30, 40)).astype(np.float32)
    part = Layout.whole(whole.shape).shard("tp", 1, coordinate=1, parts=3)
    assert part.spans is not None
    start, length = part.spans[1][0]
    view = whole[:, start : start + length]
    assert not view.flags.c_contiguous
    assert checksums_of(view, runs=part.runs()) == checksums_of(np.ascontiguousarray(view), runs=part.runs())
    assert np.array_equal(sketch(view, runs=part.runs()), sketch(np.ascontiguousarray(view), runs=part.runs()))


def test_an_empty_part_adds_nothing():
    nothing = np.empty((0, 4), np.float32)
    assert checksums_of(nothing, runs=(np.empty(0, np.int64), 1)) == (0, 0)
    assert not sketch(nothing, runs=(np.empty(0, np.int64), 1)).any()


def test_runs_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="3 runs of 2 elements are not the 5 elements"):
        checksums(np.zeros(5, "u4"), "fp32", runs=([0, 4, 8], 2))
    with pytest.raises(ValueError, match="1 runs of 2"):
        sketch(np.zeros(5), runs=([0], 2))


def test_indices_come_in_blocks_of_bounded_size():
    blocks = list(indices_in_blocks(np.array([5, 100, 200]), 7, 16))
    assert [block.size for block in blocks] == [14, 7]
    assert np.concatenate(blocks).tolist() == [*range(5, 12), *range(100, 107), *range(200, 207)]
    assert [block.size for block in indices_in_blocks(np.array([5]), 40, 16)] == [16, 16, 8]


def test_a_complex_number_is_two_real_elements():
    starts, length = real_runs(([3, 9], 2), 4, 2)
    assert starts.tolist() == [6, 18]
    assert length == 4
