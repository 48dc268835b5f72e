import math

import pytest

from msprobe.visualizers.numerals import ABSENT, measured, number, plural, share


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (412.4, "412"),
        (999.96, "1,000"),
        (0.00123456, "0.00123"),
        (0.000999, "9.99e-4"),
        (999_999.9, "1.00e6"),
        (1234567.0, "1.23e6"),
        (-3.14159, "-3.14"),
        (5e-324, "4.94e-324"),
        (math.nan, "NaN"),
        (math.inf, "+Inf"),
        (-math.inf, "-Inf"),
        (0.0, "0"),
        (-0.0, "-0"),
    ],
)
def test_a_number_is_written_with_three_digits(value: float, text: str) -> None:
    assert number(value) == text


def test_nan_infinity_zero_and_absent_are_four_texts() -> None:
    texts = [measured(value, present=True) for value in (math.nan, math.inf, 0.0)] + [measured(math.nan, present=False)]
    assert len(set(texts)) == 4
    assert texts[-1] == ABSENT


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "100 %"), (0.99999, "99.9 %"), (0.975, "97.5 %"), (1e-9, "0.1 %"), (0.0, "0 %"), (math.nan, ABSENT)],
)
def test_only_all_is_a_hundred_percent(value: float, text: str) -> None:
    assert share(value) == text


def test_one_is_singular() -> None:
    assert plural(1, "pair") == "1 pair"
    assert plural(0, "pair") == "0 pairs"
