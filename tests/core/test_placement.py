"""Layouts say exactly which elements of the whole tensor a rank holds."""

from __future__ import annotations

import numpy as np
import pytest

from msprobe.core.errors import LayoutError
from msprobe.core.placement import Layout, Placement, read_layout, whole_shape


def indices(layout: Layout) -> list[int]:
    """The global index of each local element, in local order."""
    starts, length = layout.runs()
    return (starts[:, None] + np.arange(length)).reshape(-1).tolist()


def expected(shape: tuple[int, ...], *slices: slice | list[int]) -> list[int]:
    whole = np.arange(int(np.prod(shape))).reshape(shape)
    for dim, part in enumerate(slices):
        whole = np.take(whole, np.arange(shape[dim])[part], axis=dim)
    return whole.reshape(-1).tolist()


def test_a_part_of_the_first_dimension_is_one_run():
    layout = Layout.whole((6, 4)).shard("tp", 0, coordinate=1, parts=3)
    starts, length = layout.runs()
    assert (starts.tolist(), length) == ([8], 8)
    assert layout.shape == (2, 4)


def test_a_part_of_the_last_dimension_is_a_run_for_each_row():
    layout = Layout.whole((3, 6)).shard("tp", -1, coordinate=1, parts=2)
    starts, length = layout.runs()
    assert (starts.tolist(), length) == ([3, 9, 15], 3)


@pytest.mark.parametrize("coordinate", range(4))
def test_uneven_parts_cut_as_chunk_does(coordinate):
    sizes = [2, 2, 1, 0]
    layout = Layout.whole((5, 3)).shard("fsdp", 0, coordinate=coordinate, parts=4)
    assert layout.shape == (sizes[coordinate], 3)
    assert indices(layout) == expected((5, 3), slice(2 * coordinate, 2 * coordinate + 2))


def test_parts_may_have_given_sizes():
    layout = Layout.whole((6, 2)).shard("tp", 0, coordinate=1, parts=(1, 4, 1))
    assert indices(layout) == expected((6, 2), slice(1, 5))


def test_fused_blocks_are_cut_each_by_itself():
    layout = Layout.whole((8, 2)).shard("tp", 0, coordinate=1, parts=2, blocks=(4, 2, 2))
    assert layout.spans == (((2, 2), (5, 1), (7, 1)), ((0, 2),))
    assert indices(layout) == expected((8, 2), [2, 3, 5, 7])


def test_zigzag_holds_an_early_and_a_late_part():
    layout = Layout.whole((2, 8, 3)).zigzag("cp", 1, coordinate=0, size=2)
    assert layout.shape == (2, 4, 3)
    assert indices(layout) == expected((2, 8, 3), slice(None), [0, 1, 6, 7])


def test_all_parts_of_a_product_hold_every_element_once():
    held: list[int] = []
    for tp in range(2):
        for fsdp in range(3):
            layout = Layout.whole((7, 4)).shard("tp", 1, coordinate=tp, parts=2)
            held += indices(layout.shard("fsdp", 0, coordinate=fsdp, parts=3))
    assert sorted(held) == list(range(28))


def test_a_flat_slice_of_a_whole_and_of_a_part():
    assert indices(Layout.whole((3, 4)).slice_flat("fsdp", 5, 4)) == [5, 6, 7, 8]
    part = Layout.whole((3, 4)).shard("tp", 1, coordinate=1, parts=2).slice_flat("fsdp", 1, 3)
    assert indices(part) == [3, 6, 7]
    assert part.shape == (3,)


def test_placements_are_applied_in_their_order():
    mesh = {"dp": (1, 2), "tp": (0, 2)}
    placements = [Placement("dp", "shard", 0), Placement("tp", "shard", 0)]
    layout = Layout.placed((8, 2), placements, mesh)
    assert layout.spans == (((4, 2),), ((0, 2),))
    assert layout.placements == tuple(placements)


def test_the_text_of_a_layout_reads_back_equal():
    layout = Layout.whole((8, 6), scale=0.5, known_by="flags").zigzag("cp", 0, coordinate=1, size=2)
    layout = layout.partial("tp").unknown("dp").slice_flat("fsdp", 0, 3).keyed_globally()
    assert read_layout(layout.to_json()) == layout
    assert not layout.is_known
    assert whole_shape((4, 6), layout.to_json()) == (8, 6)


def test_the_empty_text_is_the_whole_tensor():
    assert read_layout("") is None
    assert whole_shape((4, 6), "") == (4, 6)
    assert Layout.whole((4, 6)).replicate("tp").is_whole
    assert not Layout.whole((4, 6)).partial("tp").is_whole
    assert not Layout.whole((4, 6)).shard("tp", 0, coordinate=0, parts=2).is_whole


def test_no_elements_are_no_runs():
    assert indices(Layout.whole((0, 4))) == []
    assert indices(Layout.whole(())) == [0]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Layout((4,), (((3, 2),),)), "leave"),
        (lambda: Layout((4,), (((0, 2), (1, 2)),)), "overlap"),
        (lambda: Layout((4,), ((), ())), "2 dimensions of spans"),
        (lambda: Layout((4,)), "needs spans or a flat slice"),
        (lambda: Layout((4,), flat=(2, 3)), "leaves a tensor of 4"),
        (lambda: Layout.whole((4,), known_by="guess"), "known by one of"),
        (lambda: Layout.whole((4,)).shard("tp", 1, coordinate=0, parts=2), "no dimension 1"),
        (lambda: Layout.whole((4,)).shard("tp", 0, coordinate=2, parts=2), "no part 2 of 2"),
        (lambda: Layout.whole((4,)).shard("tp", 0, coordinate=0, parts=(1, 2)), "do not add up to 4"),
        (lambda: Layout.whole((6,)).zigzag("cp", 0, coordinate=0, size=2), "4 equal parts"),
        (lambda: Placement("tp", "sharded"), "no kind of placement"),
        (lambda: read_layout('{"mesh": 1}'), "not a layout"),
    ],
)
def test_a_layout_that_contradicts_itself_is_refused(make, says):
    with pytest.raises(LayoutError, match=says):
        make()
