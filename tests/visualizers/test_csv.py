import csv
import io
import math
import time

import numpy as np
import pytest

from msprobe.core.comparison import PAIR_COLUMNS, Comparison
from msprobe.visualizers.csv import Csv
from tests.visualizers.conftest import HOSTILE, make_comparison


def read(comparison: Comparison) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(Csv().render(comparison).decode("utf-8"), newline="")))


def test_every_pair_and_column_is_there(introduced: Comparison) -> None:
    rows = read(introduced)
    assert len(rows) == len(introduced)
    assert list(rows[0]) == list(PAIR_COLUMNS)
    assert [row["candidate_node"] for row in rows] == introduced.pairs["candidate_node"].tolist()


def test_numbers_keep_every_bit() -> None:
    values = [math.pi * 1e-12, 5e-324, 1.7976931348623157e308, -0.0, 0.1]
    comparison = make_comparison([{"error": value, "bound": 1 / 3} for value in values])
    for row, value in zip(read(comparison), values, strict=True):
        assert float(row["error"]).hex() == value.hex()
        assert float(row["bound"]) == 1 / 3


def test_nan_infinity_zero_and_absent_are_four_cells(introduced: Comparison) -> None:
    rows = read(introduced)
    assert rows[81]["candidate_min"] == "nan"
    assert rows[81]["error"] == "inf"
    assert rows[0]["error"] == "0.0"
    assert rows[80]["error"] == ""
    assert rows[80]["bound"] == ""
    assert rows[-1]["candidate_min"] == ""
    assert rows[-1]["candidate_nan"] == ""
    assert rows[81]["candidate_nan"] == "12"


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(1)", "\t=1", "\r=1", " =1", "\uff1d1", HOSTILE])
def test_text_is_never_a_formula(text: str) -> None:
    row = read(make_comparison([{"candidate_node": text, "error": -1.0}]))[0]
    assert row["candidate_node"] == "'" + text
    assert float(row["error"]) == -1.0


def test_other_text_stays(hostile: Comparison) -> None:
    text = 'a "quoted", \n broken \u5c42'
    assert read(make_comparison([{"candidate_node": text}]))[0]["candidate_node"] == text
    assert len(read(hostile)) == len(hostile)


def test_the_same_comparison_gives_the_same_bytes(introduced: Comparison) -> None:
    assert Csv().render(introduced) == Csv().render(introduced)


def test_no_pair_is_a_heading(empty: Comparison) -> None:
    assert Csv().render(empty).decode().strip() == ",".join(PAIR_COLUMNS)


def test_many_pairs_are_fast_and_in_order(many: Comparison) -> None:
    start = time.process_time()
    content = Csv().render(many)
    assert time.process_time() - start < 12
    rows = content.splitlines()
    assert len(rows) == len(many) + 1
    column = list(PAIR_COLUMNS).index("order")
    assert np.all(np.diff([int(row.split(b",")[column]) for row in rows[1:]]) == 1)
