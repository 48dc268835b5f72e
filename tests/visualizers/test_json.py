import json
import math

import pytest

from msprobe.core.comparison import SCHEMA_VERSION, Comparison
from msprobe.visualizers.json import Json
from tests.visualizers.conftest import HOSTILE, make_comparison


def refuse(text: str) -> None:
    pytest.fail(f"{text} is not JSON")


def strictly(comparison: Comparison) -> dict[str, object]:
    document: dict[str, object] = json.loads(Json().render(comparison), parse_constant=refuse)
    return document


def test_it_is_strict_json_with_a_version(introduced: Comparison) -> None:
    document = strictly(introduced)
    assert document["schema_version"] == SCHEMA_VERSION
    assert document["verdict"] == "introduced"
    assert document["exit_code"] == 1
    assert document["counts"] == introduced.summary.counts


def test_numbers_that_are_not_finite_are_named() -> None:
    row = {"verdict": "introduced", "error": math.inf, "error_eps": math.nan, "bound": -math.inf}
    source = strictly(make_comparison([row]))["sources"][0]  # type: ignore[index]
    assert (source["error"], source["error_eps"], source["bound"]) == ("Infinity", "NaN", "-Infinity")
    assert float(source["error"]) == math.inf


def test_text_comes_back_as_it_was(hostile: Comparison) -> None:
    assert strictly(hostile)["sentence"] == HOSTILE


def test_nothing_to_compare_is_valid(empty: Comparison) -> None:
    assert strictly(empty)["exit_code"] == 3
