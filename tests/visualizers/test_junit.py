from collections import Counter
from xml.etree import ElementTree

import pytest

from msprobe.core.comparison import Comparison
from msprobe.visualizers.junit import JUnit
from tests.visualizers.conftest import make_comparison


def suite_of(comparison: Comparison) -> ElementTree.Element:
    root = ElementTree.fromstring(JUnit().render(comparison).encode())
    assert root.tag == "testsuites"
    suite = root.find("testsuite")
    assert suite is not None
    return suite


def case_of(suite: ElementTree.Element, name: str) -> ElementTree.Element:
    found = [case for case in suite.iter("testcase") if case.get("name") == name]
    assert len(found) == 1
    return found[0]


def test_every_node_is_one_case(introduced: Comparison) -> None:
    suite = suite_of(introduced)
    names = Counter(case.get("name") for case in suite.iter("testcase"))
    pairs = introduced.pairs
    nodes = {c or r for c, r in zip(pairs["candidate_node"], pairs["reference_node"], strict=True)}
    assert set(names) == nodes | {"run verdict"}
    assert max(names.values()) == 1


def test_totals_count_the_cases(introduced: Comparison) -> None:
    suite = suite_of(introduced)
    cases = list(suite.iter("testcase"))
    assert int(suite.get("tests", "")) == len(cases)
    for total, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        assert int(suite.get(total, "")) == sum(case.find(tag) is not None for case in cases)
    assert int(suite.get("failures", "")) == 4


def test_a_guilty_node_fails_and_says_why(introduced: Comparison) -> None:
    failure = case_of(suite_of(introduced), "model.layers.3.self_attn.o_proj").find("failure")
    assert failure is not None
    assert failure.get("type") == "introduced"
    assert "error 2.46e-05, bound 3.7e-07" in (failure.text or "")


def test_what_could_not_be_judged_is_skipped_not_passed(introduced: Comparison) -> None:
    skipped = case_of(suite_of(introduced), "model.gone").find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "unmatched: only in the reference"


def test_too_little_coverage_is_an_error(empty: Comparison) -> None:
    assert case_of(suite_of(empty), "run verdict").find("error") is not None


def test_a_clean_run_passes(clean: Comparison) -> None:
    suite = suite_of(clean)
    assert (suite.get("failures"), suite.get("errors"), suite.get("skipped")) == ("0", "0", "0")


@pytest.mark.parametrize("character", ["\x00", "\x1b", "\ufffe", "<", "&", '"', "]]>", "\ud800"])
def test_any_name_gives_valid_xml(character: str) -> None:
    name = f"a{character}b"
    row: dict[str, object] = {
        "candidate_node": name,
        "reason": name,
        "verdict": "suspect",
        "argument": name,
        "candidate_class": name,
    }
    suite = suite_of(make_comparison([row], sentence=name))
    assert len(list(suite.iter("testcase"))) == 2
