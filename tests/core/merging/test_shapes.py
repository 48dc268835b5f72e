"""Where a layout is not known, the other side's whole shape may tell which dimension is cut: a fact of shapes."""

from __future__ import annotations

import numpy as np

from msprobe.core.comparing import compare_runs
from msprobe.core.placement import Layout
from msprobe.core.sites import Role

from .cutting import NO_TENSORS, Seen, write_one, write_ranks


def compare(tmp_path, values, look, sizes=None):
    one = write_one(tmp_path / "one", [Seen("a", values)], what=NO_TENSORS)
    return compare_runs(write_ranks(tmp_path / "many", sizes or {"tp": 2}, look, what=NO_TENSORS), one)


def unknown(values, axis="tp"):
    return Seen("a", values).cut(Layout.whole(values.shape).unknown(axis))


def test_one_dimension_that_is_as_many_times_larger_as_there_are_ranks(floats, tmp_path):
    values = floats(3, 8)
    comparison = compare(tmp_path, values, lambda c: [unknown(values[:, 4 * c["tp"] :][:, :4])])
    assert comparison.pairs["verdict"].tolist() == ["normal"]
    assert comparison.pairs["error_kind"].tolist() == ["statistics"]  # which piece is where is not known
    np.testing.assert_allclose(comparison.pairs["candidate_norm"], np.linalg.norm(values))


def test_the_same_shape_is_a_replica_which_is_checked(floats, tmp_path):
    values = floats(3, 8)
    assert compare(tmp_path, values, lambda c: [unknown(values)]).pairs["verdict"].tolist() == ["equal"]
    comparison = compare(tmp_path / "wrong", values, lambda c: [unknown(values * np.float32(1 + c["tp"]))])
    assert comparison.summary.sources[0].ranks == (1,)


def test_shapes_that_fit_in_no_one_way_are_not_known(floats, tmp_path):
    values = floats(3, 8)
    comparison = compare(tmp_path, values, lambda c: [unknown(values[:, :5])])
    assert comparison.pairs["verdict"].tolist() == ["inconclusive"]
    assert "how axis tp cuts it was not recorded" in comparison.pairs["reason"][0]


def test_what_does_not_run_along_the_batch_is_no_shard_of_it(floats, tmp_path):
    positions = floats(1, 8)
    comparison = compare(tmp_path, positions, lambda _: [Seen("a", positions)], {"dp": 2})
    assert comparison.pairs["verdict"].tolist() == ["equal"]
    assert comparison.pairs["candidate_shape"].tolist() == ["1x8"]


def test_ranks_of_one_sample_each_are_known_by_nothing_else(floats, tmp_path):
    values = floats(2, 8)
    comparison = compare(tmp_path, values, lambda c: [Seen("a", values[c["dp"] : c["dp"] + 1])], {"dp": 2})
    assert comparison.pairs["candidate_shape"].tolist() == ["2x8"]
    assert comparison.pairs["verdict"].tolist() == ["normal"]


def test_an_unknown_parameter_is_resolved_the_same_way(floats, tmp_path):
    weight = floats(6, 4)
    one = write_one(tmp_path / "one", [Seen("a", weight, role=Role.PARAMETER, argument="weight")], what=NO_TENSORS)

    def look(c):
        half = Seen("a", weight[3 * c["tp"] :][:3], role=Role.PARAMETER, argument="weight")
        yield half.cut(Layout.whole((3, 4)).unknown("tp"))

    comparison = compare_runs(write_ranks(tmp_path / "many", {"tp": 2}, look, what=NO_TENSORS), one)
    assert comparison.pairs["verdict"].tolist() == ["normal"]


def test_halves_of_which_only_the_mesh_is_known_are_no_replicas(floats, tmp_path):
    values = floats(3, 8)
    comparison = compare(tmp_path, values, lambda c: [Seen("a", values[:, 4 * c["tp"] :][:, :4])])
    assert comparison.pairs["verdict"].tolist() == ["normal"]
    assert comparison.pairs["candidate_shape"].tolist() == ["3x8"]
    assert "replica" not in " ".join(finding.text for finding in comparison.summary.findings)


def test_wholes_of_which_only_the_mesh_is_known_are_replicas_which_are_checked(floats, tmp_path):
    values = floats(3, 8)
    comparison = compare(tmp_path, values, lambda c: [Seen("a", values * np.float32(1 + c["tp"]))])
    assert comparison.summary.sources[0].ranks == (1,)
