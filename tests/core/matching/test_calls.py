from __future__ import annotations

import pytest

from msprobe.core.matching.calls import Call, align

A, B, C = (Call(kind, norm) for kind, norm in ((1, 1.0), (2, 2.0), (3, 3.0)))


def test_equal_sequences_pair_one_by_one() -> None:
    assert align([A, B, C], [A, B, C]) == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("extra", [0, 1, 2, 3])
def test_one_more_call_shifts_nothing(extra: int) -> None:
    longer = [A, B, C]
    longer.insert(extra, Call(9, 1.0))
    pairs = align(longer, [A, B, C])
    assert [longer[i].kind for i, _ in pairs] == [1, 2, 3]


def test_content_tells_which_of_several_equal_calls_is_extra() -> None:
    four = [Call(1, norm) for norm in (1.0, 2.0, 3.0, 4.0)]
    three = [Call(1, norm) for norm in (1.0, 3.001, 4.0)]
    assert align(four, three) == [(0, 0), (2, 1), (3, 2)]


def test_a_wrong_value_still_pairs_by_its_place() -> None:
    assert align([A, Call(2, 500.0), C], [A, B, C]) == [(0, 0), (1, 1), (2, 2)]


def test_calls_of_other_kinds_never_pair() -> None:
    assert align([A], [B]) == []


def test_long_sequences_are_aligned_too() -> None:
    long = [Call(i % 7, 1.0) for i in range(1500)]
    assert len(align(long, long[:700] + long[701:])) == 1499
