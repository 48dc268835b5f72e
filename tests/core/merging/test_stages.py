"""Pipeline stages are one model again: no layer is lost, and the data flow crosses from stage to stage."""

from __future__ import annotations

import numpy as np
import pytest

import msprobe
from msprobe.core.comparing import compare_runs

from .cutting import NO_TENSORS
from .stages import LAYERS, run_layers, write_stages, write_virtual_stages, write_whole

CUTS = {"even": (3, 3), "uneven": (1, 2, 2, 1), "lopsided": (5, 1)}


@pytest.fixture
def one(tmp_path):
    return write_whole(tmp_path / "one")


def assert_clean(comparison):
    assert comparison.summary.verdict == "clean", comparison.summary.sentence
    assert comparison.summary.coverage.matched_share == 1.0
    assert comparison.summary.coverage.judged_share == 1.0


@pytest.mark.parametrize("sizes", CUTS.values(), ids=CUTS)
def test_uneven_stages_keep_all_layers(sizes, one, tmp_path):
    comparison = compare_runs(write_stages(tmp_path / "many", sizes), one)
    assert_clean(comparison)
    assert {f"layers.{i}" for i in range(LAYERS)} <= set(comparison.pairs["candidate_node"])


@pytest.mark.parametrize("sizes", CUTS.values(), ids=CUTS)
def test_stages_that_count_from_0_go_on_where_the_one_before_ends(sizes, one, tmp_path):
    many = write_stages(tmp_path / "many", sizes, told=False)
    comparison = msprobe.compare(many, one, parallel={"pp": len(sizes)})
    assert_clean(comparison)
    assert {f"layers.{i}" for i in range(LAYERS)} <= set(comparison.pairs["candidate_node"])


def test_virtual_stages_are_put_in_their_order(one, merged, tmp_path):
    many = write_virtual_stages(tmp_path / "many")
    assert_clean(compare_runs(many, one))
    whole = merged(many)
    table = whole.table()
    forward = (table["direction"] == "forward") & (table["role"] == "output") & (table["node"] != "")
    assert table["node"][forward].tolist() == [f"layers.{i}" for i in range(LAYERS)]
    backward = (table["direction"] == "backward") & (table["role"] == "output") & (table["node"] != "")
    assert table["node"][backward].tolist() == [f"layers.{i}" for i in reversed(range(LAYERS))]


def test_virtual_stages_that_recorded_nothing_are_told_by_flags(one, tmp_path):
    many = write_virtual_stages(tmp_path / "many", told=False)
    assert_clean(msprobe.compare(many, one, parallel={"pp": 2, "vpp": 2}))


def test_the_model_is_entered_in_the_first_stage_and_left_in_the_last(merged, tmp_path):
    whole = merged(write_stages(tmp_path, (1, 2, 2, 1)))
    (tensors,) = run_layers()
    table = whole.table()
    ends = {("forward", "input"): ("x", 0), ("forward", "output"): ("x", LAYERS)}
    ends |= {("backward", "input"): ("g", LAYERS), ("backward", "output"): ("g", 0)}
    for (direction, role), (name, layer) in ends.items():
        rows = (table["node"] == "") & (table["direction"] == direction) & (table["role"] == role)
        (row,) = np.flatnonzero(rows)
        np.testing.assert_array_equal(whole.tensor(int(row)), tensors[name][layer])


@pytest.mark.parametrize("wrong", range(LAYERS))
def test_the_first_source_is_named_across_stages(wrong, one, tmp_path):
    many = write_stages(tmp_path / "many", (1, 2, 2, 1), wrong=wrong, what=NO_TENSORS)
    comparison = compare_runs(many, one)
    (source,) = comparison.summary.sources
    assert (source.node, source.role) == (f"layers.{wrong}", "parameter")


def test_rank_by_rank_a_later_stage_inherits_from_an_earlier_one(tmp_path):
    sides = [
        write_stages(tmp_path / name, (3, 3), wrong=wrong, what=NO_TENSORS)
        for name, wrong in (("candidate", 1), ("reference", -1))
    ]
    comparison = compare_runs(*sides)
    (source,) = comparison.summary.sources
    assert (source.node, source.rank) == ("layers.1", 0)
    assert set(comparison.pairs["rank"]) == {0, 1}


def test_micro_steps_of_stages_join_to_the_batch_of_one_step(tmp_path):
    many = write_stages(tmp_path / "many", (3, 3), micro_steps=2)
    whole = write_whole(tmp_path / "one", micro_steps=2)
    assert_clean(compare_runs(many, whole))
