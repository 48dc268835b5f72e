"""Whatever the cut, the whole is exactly what it was before: statistics, sketch, checksums, tensor, rows."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from msprobe.core.checksums import checksums_of
from msprobe.core.placement import Layout
from msprobe.core.row_statistics import measure_rows
from msprobe.core.sites import Direction, Role
from msprobe.core.sketches import sketch
from msprobe.core.statistics import measure

from .cutting import ALL, NO_TENSORS, Seen, write_ranks


def tp(dim):
    return {"tp": 2}, lambda c, s: Layout.whole(s).shard("tp", dim, coordinate=c["tp"], parts=2)


def zigzag(c, shape):
    return Layout.whole(shape).zigzag("cp", 1, coordinate=c["cp"], size=2)


def fsdp_of_tp(c, shape):
    return (
        Layout.whole(shape).shard("tp", 1, coordinate=c["tp"], parts=2).shard("fsdp", 0, coordinate=c["fsdp"], parts=3)
    )


def hybrid(c, shape):
    return Layout.whole(shape).replicate("dp").shard("fsdp", 0, coordinate=c["fsdp"], parts=2)


def flat(c, shape):
    size = math.prod(shape)
    cuts = [0, size // 3, size // 2 + 1, size]
    return Layout.whole(shape).slice_flat("fsdp", cuts[c["fsdp"]], cuts[c["fsdp"] + 1] - cuts[c["fsdp"]])


def uneven(c, shape):
    return Layout.whole(shape).shard("tp", 0, coordinate=c["tp"], parts=(1, 0, shape[0] - 1))


def fused(c, shape):
    return Layout.whole(shape).shard("tp", -1, coordinate=c["tp"], parts=2, blocks=(8, 2, 2))


LAYOUTS = {
    "first dimension": tp(0),
    "last dimension": tp(-1),
    "uneven, one empty": ({"tp": 3}, uneven),
    "fused blocks": ({"tp": 2}, fused),
    "zigzag": ({"cp": 2}, zigzag),
    "flat slices": ({"fsdp": 3}, flat),
    "FSDP over TP": ({"fsdp": 3, "tp": 2}, fsdp_of_tp),
    "HSDP": ({"dp": 2, "fsdp": 2}, hybrid),
}


@pytest.fixture(params=LAYOUTS, ids=str)
def cut(request):
    return LAYOUTS[request.param]


def test_a_cut_parameter_is_whole_again(cut, floats, merged, tmp_path):
    mesh, layout = cut
    weight = floats(4, 8, 12)
    seen = Seen("layer", weight, role=Role.PARAMETER, argument="weight")
    write_ranks(tmp_path, mesh, lambda c: [seen.cut(layout(c, weight.shape).keyed_globally())], what=ALL)
    whole = merged(tmp_path)
    expected = measure(weight)
    for name in ("min", "max", "nan", "zero"):
        assert whole.records[name].tolist() == [getattr(expected, name)]
    for name in ("mean", "mean_abs", "m2", "norm"):
        assert whole.records[name].tolist() == pytest.approx(
            [getattr(expected, name)], rel=1e-5, abs=1e-6 * expected.mean_abs
        )
    np.testing.assert_allclose(whole.records["sketch"][0], sketch(weight), atol=1e-9)
    assert (int(whole.records["checksum"][0]), int(whole.records["content_sum"][0])) == checksums_of(weight)
    np.testing.assert_array_equal(whole.tensor(0), weight)
    assert whole.forms[0].shape == weight.shape


def test_rows_are_joined_where_each_rank_holds_whole_rows(floats, merged, tmp_path):
    values = floats(2, 8, 5)
    seen = Seen("attention", values)
    write_ranks(tmp_path, {"cp": 2}, lambda c: [seen.cut(zigzag(c, values.shape))])
    rows, expected = merged(tmp_path).row_statistics(0), measure_rows(values)
    assert rows is not None
    for name, column in expected.items():
        np.testing.assert_array_equal(rows[name], column)


def test_rows_that_are_cut_are_not_known(floats, merged, tmp_path):
    values = floats(4, 6)
    write_ranks(tmp_path, {"tp": 2}, lambda c: [Seen("a", values).cut(tp(1)[1](c, values.shape))])
    assert merged(tmp_path).row_statistics(0) is None


def test_sums_keyed_by_the_local_index_are_never_added(floats, merged, tmp_path):
    weight = floats(4, 6)
    seen = Seen("a", weight, role=Role.PARAMETER, argument="weight")
    write_ranks(tmp_path, {"tp": 2}, lambda c: [seen.cut(tp(0)[1](c, weight.shape))], what=NO_TENSORS)
    whole = merged(tmp_path)
    assert whole.table()["norm"].tolist() == pytest.approx([measure(weight).norm])
    assert np.isnan(whole.records["sketch"]).all()
    assert whole.records["checksum"].tolist() == [0]
    assert whole.records["has"].tolist() == [1]


def test_data_parallel_activations_are_pieces_of_the_batch_and_parameters_are_not(floats, merged, tmp_path):
    weight, values = floats(3, 4), floats(5, 2, 4)
    sizes = (3, 2)

    def look(c):
        first = sum(sizes[: c["dp"]])
        yield Seen("a", weight, role=Role.PARAMETER, argument="weight")
        yield Seen("a", values[first : first + sizes[c["dp"]]])

    whole = merged(write_ranks(tmp_path, {"dp": 2}, look))
    np.testing.assert_array_equal(whole.tensor(0), weight)
    np.testing.assert_array_equal(whole.tensor(1), values)
    assert [whole.provenance(i).how for i in range(2)] == ["alone", "join"]
    assert [(p.rank, p.use) for p in whole.provenance(0).parts] == [(0, "kept"), (1, "replica")]


def test_batches_that_are_not_as_even_as_their_layouts_suppose_are_joined_by_size(floats, merged, tmp_path):
    values, sizes = floats(5, 4), (3, 2)

    def look(c):
        size = sizes[c["dp"]]
        supposed = Layout.whole((2 * size, 4)).shard("dp", 0, coordinate=c["dp"], parts=2).keyed_globally()
        first = sum(sizes[: c["dp"]])
        yield replace(Seen("a", values[first : first + size]), layout=supposed)

    whole = merged(write_ranks(tmp_path, {"dp": 2}, look))
    np.testing.assert_array_equal(whole.tensor(0), values)
    assert whole.records["norm"].tolist() == pytest.approx([measure(values).norm])
    assert np.isnan(whole.records["sketch"]).all()
    assert whole.records["checksum"].tolist() == [0]


@pytest.mark.parametrize(("op", "expected"), [("sum", 4.0), ("avg", 2.0)])
def test_partial_gradients_are_summed_or_averaged_in_sketch_and_tensor_only(op, expected, floats, merged, tmp_path):
    gradient = floats(4, 6)

    def look(c):
        own = Seen("a", gradient * (1 + 2 * c["dp"]), Direction.BACKWARD, Role.GRADIENT, "weight")
        layout = Layout.whole(gradient.shape).partial("dp", op).shard("tp", 1, coordinate=c["tp"], parts=2)
        yield own.cut(layout.keyed_globally())

    whole = merged(write_ranks(tmp_path, {"dp": 2, "tp": 2}, look))
    np.testing.assert_allclose(whole.tensor(0), expected * gradient, rtol=1e-6)
    np.testing.assert_allclose(whole.records["sketch"][0], sketch(expected * gradient), rtol=1e-5)
    assert np.isnan(whole.records["norm"]).all()
    assert whole.records["checksum"].tolist() == [0]


def test_a_recorded_scale_is_taken_out_of_gradients(floats, merged, tmp_path):
    gradient = floats(4, 6)
    scaled = Layout.whole(gradient.shape, scale=1024.0)
    seen = Seen("a", gradient * 1024, Direction.UPDATE, Role.GRADIENT, "weight")
    whole = merged(write_ranks(tmp_path, {"dp": 2}, lambda _: [seen.cut(scaled)]))
    np.testing.assert_array_equal(whole.tensor(0), gradient)
    assert whole.records["norm"].tolist() == pytest.approx([measure(gradient).norm])
    assert whole.records["m2"].tolist() == pytest.approx([measure(gradient).m2])


def test_non_finite_elements_are_counted_over_all_parts(floats, merged, tmp_path):
    weight = floats(4, 4)
    weight[0, 0], weight[3, 3], weight[3, 2] = np.nan, np.inf, -np.inf
    seen = Seen("a", weight, role=Role.PARAMETER, argument="weight")
    whole = merged(write_ranks(tmp_path, {"tp": 2}, lambda c: [seen.cut(tp(0)[1](c, weight.shape))]))
    records = whole.records
    assert [records[name].tolist() for name in ("nan", "pos_inf", "neg_inf")] == [[1], [1], [1]]
    assert records["mean"].tolist() == pytest.approx([measure(weight).mean])
