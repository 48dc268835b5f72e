"""What cannot be known is said, with the reason, and never guessed."""

from __future__ import annotations

import numpy as np
import pytest

from msprobe.core.errors import LayoutError
from msprobe.core.merging.parallel import Parallel
from msprobe.core.merging.rules import LayoutRule
from msprobe.core.placement import Layout
from msprobe.core.sites import Role

from .cutting import Seen, write_ranks


def reason(whole, index=0):
    assert whole.tensor(index) is None
    assert whole.records["has"][index] == 0
    return whole.forms[int(whole.records["form"][index])].kind


def test_an_unknown_axis_is_not_known(floats, merged, tmp_path):
    values = floats(2, 4)
    write_ranks(tmp_path, {"tp": 2}, lambda _: [Seen("a", values).cut(Layout.whole((2, 4)).unknown("tp"))])
    assert "how axis tp cuts it was not recorded" in reason(merged(tmp_path))


def test_a_sequence_cut_by_context_parallelism_is_not_known_without_a_layout(floats, merged, tmp_path):
    values = floats(2, 4)
    assert "axis cp" in reason(merged(write_ranks(tmp_path, {"cp": 2}, lambda _: [Seen("a", values)])))


def test_parts_that_leave_elements_out(floats, merged, tmp_path):
    seen = Seen("a", floats(8, 2), role=Role.PARAMETER, argument="weight")
    write_ranks(tmp_path, {"tp": 2}, lambda c: [seen.cut(Layout((8, 2), (((4 * c["tp"], 3),), ((0, 2),))))])
    assert "4 of 16 elements were recorded on no rank" in reason(merged(tmp_path))


def test_parts_that_overlap(floats, merged, tmp_path):
    seen = Seen("a", floats(6, 2), role=Role.PARAMETER, argument="weight")
    starts, lengths = (0, 2), (3, 3)
    write_ranks(
        tmp_path,
        {"tp": 2},
        lambda c: [seen.cut(Layout((6, 2), (((starts[c["tp"]], lengths[c["tp"]]),), ((0, 2),))))],
    )
    assert "several ranks hold the same elements" in reason(merged(tmp_path))


def test_a_scalar_of_each_data_parallel_rank(floats, merged, tmp_path):
    loss = Seen("", np.float32(3.0).reshape(()))
    assert "a scalar of each rank along axis dp" in reason(merged(write_ranks(tmp_path, {"dp": 2}, lambda _: [loss])))


def test_a_rank_that_did_not_record_its_piece(floats, merged, tmp_path):
    values = floats(2, 4)

    def look(c):
        yield Seen("a", values, role=Role.INPUT)
        if c["dp"] == 0:
            yield Seen("a", values)

    whole = merged(write_ranks(tmp_path, {"dp": 2}, look))
    assert whole.tensor(0).shape == (4, 4)
    assert "rank 1 did not record its piece" in reason(whole, 1)


def test_formats_that_differ_between_ranks(floats, merged, tmp_path):
    values = floats(2, 4)
    look = lambda c: [Seen("a", values.astype(np.float64) if c["dp"] else values)]  # noqa: E731
    assert "ranks hold it in different formats: fp32, fp64" in reason(merged(write_ranks(tmp_path, {"dp": 2}, look)))


def test_a_run_without_a_mesh_needs_one_to_be_told(floats, merged, tmp_path):
    values = floats(2, 4)
    write_ranks(tmp_path, {"dp": 2}, lambda _: [Seen("a", values)], mesh={})
    with pytest.raises(LayoutError, match="nothing tells how the work was spread over its 2 ranks"):
        merged(tmp_path)
    assert merged(tmp_path, Parallel({"dp": 2})).tensor(0).shape == (4, 4)


def test_a_mesh_that_does_not_fit_the_ranks(floats, merged, tmp_path):
    write_ranks(tmp_path, {"dp": 2}, lambda _: [Seen("a", floats(2, 4))], mesh={})
    with pytest.raises(LayoutError, match="tp 4 = 4 ranks do not divide its 2 ranks"):
        merged(tmp_path, Parallel({"tp": 4}))
    with pytest.raises(LayoutError, match="no axis is called 'sp'"):
        Parallel({"sp": 2})


def test_a_rule_for_a_class_speaks_where_nothing_was_recorded(floats, merged, tmp_path):
    weight, values = floats(6, 4), floats(2, 6)
    rule = LayoutRule.of("Column*", outputs={"tp": "shard(-1)"}, parameters={"weight": {"tp": "shard(0)"}})

    def look(c):
        half = slice(3 * c["tp"], 3 * c["tp"] + 3)
        kind = "ColumnParallelLinear"
        yield Seen("a", weight[half], role=Role.PARAMETER, argument="weight", class_name=kind)
        yield Seen("a", values[:, half], class_name=kind)

    write_ranks(tmp_path, {"tp": 2}, look, mesh={})
    whole = merged(tmp_path, Parallel({"tp": 2}, rules=(rule,)))
    np.testing.assert_array_equal(whole.tensor(0), weight)
    np.testing.assert_array_equal(whole.tensor(1), values)
