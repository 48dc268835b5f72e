"""Sequences of modules align by the shapes of their parameters: step by step, and with something missing."""

from __future__ import annotations

from msprobe.core.matching.aligning import Item, align_items

WIDE, NARROW = ((8, 4),), ((4, 8),)


def item(shape: tuple[tuple[int, ...], ...], kind: str = "", name: str = "x") -> Item:
    return Item(0, kind, shape, name)


def layer_of_parts() -> list[Item]:
    return [item(((4,),), "norm"), item(((4, 4),)), item(((2, 4),)), item(((2, 4),)), item(NARROW)]


def fused_layer() -> list[Item]:
    return [item(((4,),), "norm"), item(WIDE), item(NARROW)]


def test_a_fused_module_stands_against_its_parts() -> None:
    assert align_items(fused_layer() * 2, layer_of_parts() * 2) == [
        (0, 0, 1, 1),
        (1, 1, 1, 3),
        (2, 4, 1, 1),
        (3, 5, 1, 1),
        (4, 6, 1, 3),
        (5, 9, 1, 1),
    ]
    assert align_items(layer_of_parts(), fused_layer()) == [(0, 0, 1, 1), (1, 1, 3, 1), (4, 2, 1, 1)]


def test_what_one_side_lacks_is_left_out() -> None:
    extra = [item(((9, 9),)), *fused_layer()]
    assert align_items(extra, layer_of_parts()) == [(1, 0, 1, 1), (2, 1, 1, 3), (3, 4, 1, 1)]


def test_modules_of_other_kinds_do_not_align() -> None:
    assert align_items([item(WIDE, "embed")], [item(WIDE)]) == []


def test_long_sequences_that_fit_are_aligned_in_one_walk() -> None:
    assert len(align_items(fused_layer() * 2000, layer_of_parts() * 2000)) == 6000
