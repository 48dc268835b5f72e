"""The synthetic pair of the speed benchmark compares to the verdict that was planted; time is not asserted here."""

from __future__ import annotations

import json

import pytest

import msprobe
from benchmarks.compare_speed import FULL, command, measure, write_pair
from benchmarks.synthetic_run import FAULT_STEP, Shape

SMALL = Shape(layers=4, steps=3)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return write_pair(tmp_path_factory.mktemp("speed"), SMALL)


def test_the_full_size_is_two_hundred_thousand_records():
    assert 200_000 <= FULL.records <= 210_000


def test_a_run_holds_what_its_shape_says(pair):
    records = msprobe.open_run(pair[0]).rank(0).records
    assert len(records["seq"]) == SMALL.records


def test_the_planted_fault_is_named_first_through_the_mapping(pair):
    comparison = msprobe.compare(pair[0], pair[1], mapping=pair[2])
    first = comparison.summary.sources[0]
    assert (first.node, first.step, first.role) == (SMALL.fault, FAULT_STEP, "output")
    assert comparison.summary.coverage.matched_share == 1.0
    assert (comparison.pairs["candidate_node"] != comparison.pairs["reference_node"]).mean() > 0.4


def test_the_measured_command_writes_the_same_verdict(pair, tmp_path):
    cost = measure([*command(pair, tmp_path / "out"), "--quiet"])
    assert cost.exit_code == 1
    assert cost.cpu_seconds > 0
    assert cost.peak_bytes > 10**6
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["sources"][0]["node"] == SMALL.fault
