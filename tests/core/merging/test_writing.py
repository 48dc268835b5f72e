"""A merged run on disk is a run like any other."""

from __future__ import annotations

import numpy as np
import pytest

import msprobe
from msprobe.cli import main
from msprobe.core.comparing import compare_runs
from msprobe.core.placement import Layout
from msprobe.core.run.reader import open_run
from msprobe.core.sites import Role

from .cutting import Seen, write_one, write_ranks
from .model import EDGES, Fault, cut, whole
from .stages import write_stages, write_whole

SIZES = {"dp": 2, "tp": 2}


def write(path, fault=None, **settings):
    return write_ranks(path, SIZES, lambda place: cut(SIZES, place, fault), edges=EDGES, **settings)


@pytest.fixture
def one(tmp_path):
    return write_one(tmp_path / "one", whole(), edges=EDGES)


def test_a_written_run_equals_the_run_of_one_rank(one, tmp_path, capsys):
    many = write(tmp_path / "many")
    assert main(["merge", str(many), "--out", str(tmp_path / "merged")]) == 0
    assert "4 ranks as one, 16 records of 64" in capsys.readouterr().out
    merged = open_run(tmp_path / "merged")
    assert (merged.ranks, merged.rank(0).info.world_size) == ((0,), 1)
    assert merged.header.context["merged_from"]["mesh"] == SIZES
    comparison = compare_runs(merged, one)
    assert comparison.summary.verdict == "clean"
    assert comparison.summary.coverage.matched_share == comparison.summary.coverage.judged_share == 1.0
    weights = comparison.pairs["role"] == "parameter"
    assert set(comparison.pairs["verdict"][weights]) == {"equal"}


def test_a_written_run_holds_the_exact_bits_of_tensors_and_rows(floats, tmp_path):
    values = floats(6, 4)
    seen = Seen("a", values, role=Role.PARAMETER, argument="weight")
    layout = lambda c: Layout.whole(values.shape).shard("tp", 0, coordinate=c["tp"], parts=2)  # noqa: E731
    write_ranks(tmp_path / "many", {"tp": 2}, lambda c: [seen.cut(layout(c))])
    assert main(["merge", str(tmp_path / "many"), "--out", str(tmp_path / "merged")]) == 0
    rank = open_run(tmp_path / "merged").rank(0)
    bits, rows = rank.tensor_bits(0), rank.row_statistics(0)
    assert bits is not None
    assert rows is not None
    assert (bits[0], bits[1].tobytes()) == ("fp32", values.tobytes())
    np.testing.assert_allclose(rows["norm"], np.linalg.norm(values.astype(np.float64), axis=1), rtol=1e-12)


def test_a_written_run_says_what_each_record_was_made_from(tmp_path):
    main(["merge", str(write(tmp_path / "many")), "--out", str(tmp_path / "merged")])
    rank = open_run(tmp_path / "merged").rank(0)
    told = {(rank.nodes[f.node].path, f.name): f.value for f in rank.facts if f.kind == "merged"}
    assert told["a", "forward parameter weight"] == "join of ranks 0, 1; replicas on ranks 2, 3"
    assert told["a", "forward output 0"] == "join of ranks 0, 1, 2, 3"
    assert told["b", "forward output 0"] == "join of ranks 0, 2; replicas on ranks 1, 3"
    assert told["a", "backward gradient weight"] == "sum of ranks 0, 1, 2, 3"


def test_sites_keep_their_call_stacks(tmp_path):
    many = write_stages(tmp_path / "many", (3, 3))
    main(["merge", str(many), "--out", str(tmp_path / "merged")])
    rank = open_run(tmp_path / "merged").rank(0)
    sites = rank.sites
    told = {
        rank.nodes[sites.node[i]].path: rank.stacks[sites.stack[i]] for i in range(len(sites)) if sites.stack[i] >= 0
    }
    assert told["layers.1"] == ("rank 0", "layers.1")
    assert told["layers.4"] == ("rank 1", "layers.1")  # which the rank called so


def test_stages_are_written_as_one_model(tmp_path):
    many, one = write_stages(tmp_path / "many", (1, 2, 2, 1)), write_whole(tmp_path / "one")
    assert main(["merge", str(many), "--out", str(tmp_path / "merged")]) == 0
    assert compare_runs(tmp_path / "merged", one).summary.verdict == "clean"


def test_differing_replicas_and_unknown_records_are_said(tmp_path, capsys):
    fault = Fault("b", Role.PARAMETER, lambda v: v * 1.01, {"dp": 1})
    assert main(["merge", str(write(tmp_path / "many", fault)), "--out", str(tmp_path / "merged")]) == 0
    assert "differs from rank 0 (dp 0, tp 0) along axis dp" in capsys.readouterr().out
    seen = Seen("a", np.ones((2, 2), np.float32)).cut(Layout.whole((2, 2)).unknown("tp"))
    unknown = write_ranks(tmp_path / "unknown", {"tp": 2}, lambda _: [seen])
    assert main(["merge", str(unknown), "--out", str(tmp_path / "known")]) == 0
    assert "1 records: not known: how axis tp cuts it was not recorded" in capsys.readouterr().out


def test_mistakes_end_with_what_to_do(tmp_path, capsys):
    many = write(tmp_path / "many", mesh={})
    for words, told in (
        ([str(many), "--out", str(tmp_path / "x")], "nothing tells how the work was spread over its 4 ranks"),
        ([str(many), "--out", str(many), "--tp", "2"], "holds files already; name a new directory"),
        ([str(many), "--out", str(tmp_path / "x"), "--tp", "3"], "tp 3 = 3 ranks do not divide its 4 ranks"),
        ([str(many), "--out", str(tmp_path / "x"), "--tp", "two"], "--tp two: give a number of ranks"),
        ([str(many), "--out", str(tmp_path / "x"), "--order", "tp-dp"], "give their sizes too, such as --tp 2"),
        ([str(many), "--out", str(tmp_path / "x"), "--tp", "2", "--order", "tp-xp"], "no axis is called 'xp'"),
    ):
        assert main(["merge", *words]) == 2
        assert told in capsys.readouterr().err


def test_flags_tell_the_mesh_of_a_run_that_did_not_record_it(one, tmp_path):
    many = write(tmp_path / "many", mesh={})
    comparison = msprobe.compare(many, one, parallel={"tp": 2}, merge=True)
    assert comparison.summary.verdict == "clean"
    wrong = msprobe.compare(many, one, parallel={"tp": 2}, order="dp-tp", merge=True)
    assert wrong.summary.verdict != "clean"
