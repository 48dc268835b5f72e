"""What was written is read: whole, under one numbering, quickly, and with clear words when it cannot be."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from msprobe.core.errors import RunError, RunVersionError
from msprobe.core.graph import EdgeSource
from msprobe.core.records import HAS, RECORD_COLUMNS
from msprobe.core.run.batch import Batch, Fact, RunHeader, SavedRows, SavedTensor, SiteRow
from msprobe.core.run.reader import RankRun, open_run
from msprobe.core.sites import Direction, Form, Node, NodeKind, Role, Site

PROGRAM = Path(__file__).with_name("recording_program.py")


def written(writer, *batches):
    for batch in batches:
        writer.submit(batch)
    assert writer.flush(30)
    return open_run(writer.path)


def test_everything_of_a_batch_round_trips(tmp_path, start_writer):
    values = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324])
    records = {c.name: np.zeros((5, c.width) if c.width else 5, c.dtype) for c in RECORD_COLUMNS}
    records |= {"seq": np.arange(5), "min": values, "sketch": np.outer(values, np.ones(8)), "tensor": np.full(5, 3)}
    records |= {"nan": np.array([0, -1, 2**62, 1, 0]), "checksum": np.full(5, 2**64 - 1, np.uint64)}
    records |= {"rows": np.array([-1, 1, -1, -1, -1]), "site": np.array([0, 1, 0, 1, 0])}
    nodes = [Node("", NodeKind.MODULE, "Net", None), Node("/aten.mm", NodeKind.OP, "aten.mm", "", "torch.mm")]
    sites = [
        SiteRow(0, Direction.RECOMPUTE, Role.BUFFER, "0.mask", 2, 0),
        SiteRow(1, Direction.UPDATE, Role.SAVED, "", 0),
    ]
    forms = [Form("bf16", (2, 0), "sparse_coo", '{"mesh": 1}')]
    batch = Batch(
        4, nodes, sites, forms, [(0, 1, EdgeSource.IDENTITY)], [("a.py:1", "b.py:2")], records,
        [Fact(4, 1, 1, "scalar", "eps", 1e-6)], tensors=[SavedTensor(3, "bf16", (2, 0), b"")],
        rows=[SavedRows(1, {"norm": np.array([1.0, np.nan]), "count": np.array([1, 2])})],
    )  # fmt: skip
    what = {"statistics", "sketch", "checksums", "rows", "tensors"}

    rank = written(start_writer(tmp_path / "run", what=what), batch).rank(0)

    for column in RECORD_COLUMNS:
        assert rank.records[column.name].dtype == column.dtype
        assert rank.records[column.name].tobytes() == np.asarray(records[column.name], column.dtype).tobytes()
    assert rank.nodes == tuple(nodes)
    assert rank.forms == tuple(forms)
    assert rank.stacks == [("a.py:1", "b.py:2")]
    assert rank.facts == batch.facts
    assert rank.edges.tolist() == [[0, 1]]
    assert tuple(EdgeSource)[rank.edges_known_by[0]] is EdgeSource.IDENTITY
    assert rank.sites.site(0) == Site("", Direction.RECOMPUTE, Role.BUFFER, "0.mask", 2)
    assert rank.sites.site(1) == Site("/aten.mm", Direction.UPDATE, Role.SAVED, "", 0)
    assert rank.sites.stack.tolist() == [0, -1]
    assert rank.tensor(0).shape == (2, 0)
    assert rank.row_statistics(0) is None
    np.testing.assert_array_equal(rank.row_statistics(1)["norm"], [1.0, np.nan])
    assert rank.row_statistics(1)["count"].tolist() == [1, 2]


def test_a_segment_holds_only_the_columns_asked_for(tmp_path, start_writer, new_batch):
    records = written(start_writer(tmp_path / "run", what={"checksums"}), new_batch(0)).rank(0).records

    assert "norm" not in records
    assert "sketch" not in records
    assert records["checksum"].tolist() == [0, 0, 0]


def test_a_record_does_not_claim_what_its_segment_does_not_hold(tmp_path, start_writer, new_batch):
    batch = new_batch(0)
    batch.records["has"] = np.full(3, HAS["statistics"] | HAS["checksums"])

    records = written(start_writer(tmp_path / "run", what={"statistics"}), batch).rank(0).records

    assert records["has"].tolist() == [HAS["statistics"]] * 3


def test_header_and_rank_round_trip(tmp_path, start_writer, new_batch):
    writer = start_writer(tmp_path / "run", rank=1)

    run = written(writer, new_batch(0))

    assert run.header == RunHeader("numpy", arguments=())
    assert run.ranks == (1,)
    assert (run.rank(1).info.rank, run.rank(1).info.world_size) == (1, 2)
    assert 0 <= run.duration < 60
    assert set(run.sizes()) >= {"records", "sites", "commits"}


def test_segments_are_joined_under_one_numbering(tmp_path, start_writer, new_batch):
    first = new_batch(0, stacks=[("a",)])
    first.nodes.append(Node("a", NodeKind.MODULE, "A", ""))
    first.sites.append(SiteRow(1, Direction.FORWARD, Role.OUTPUT, "0", 0, 0))
    first.edges.append((0, 1, EdgeSource.TRACED))
    second = new_batch(1, stacks=[("b",), ("a",)])
    second.nodes = [Node("b", NodeKind.MODULE, "B", ""), Node("a", NodeKind.MODULE, "A", "")]
    second.sites = [
        SiteRow(0, Direction.FORWARD, Role.OUTPUT, "0", 0, 0),
        SiteRow(1, Direction.FORWARD, Role.OUTPUT, "0", 0, 1),
    ]
    second.forms = [Form("bf16", (1,)), Form("fp32", (2, 3))]
    second.records |= {"site": np.array([0, 1, 1]), "form": np.array([0, 0, 1])}
    second.facts = [Fact(1, 0, 1, "scalar", "eps", 1)]
    second.edges = [(1, 0, EdgeSource.TRACED)]
    for batch in (first, second):
        writer = start_writer(tmp_path / "run", what={"statistics"})
        written(writer, batch)
        writer.close()

    rank = open_run(tmp_path / "run").rank(0)

    assert rank.node_paths == ["", "a", "b"]
    assert rank.sites.node.tolist() == [0, 1, 2]
    assert rank.sites.stack.tolist() == [-1, 0, 1]
    assert rank.stacks == [("a",), ("b",)]
    assert rank.records["site"].tolist() == [0, 0, 0, 2, 1, 1]
    assert rank.records["form"].tolist() == [0, 0, 0, 1, 1, 0]
    assert rank.records["segment"].tolist() == [0, 0, 0, 1, 1, 1]
    assert rank.facts[0].node == 1
    assert rank.edges.tolist() == [[0, 1], [1, 2]]


def test_segments_with_other_columns_are_filled(tmp_path, start_writer, new_batch):
    for step, what in enumerate(({"statistics"}, {"checksums"})):
        writer = start_writer(tmp_path / "run", what=what)
        written(writer, new_batch(step, rows=1))
        writer.close()

    records = open_run(tmp_path / "run").rank(0).records

    assert records["norm"][0] == 0
    assert np.isnan(records["norm"][1])
    assert records["nan"].tolist() == [-1, -1]


def written_steps(start_writer, new_batch, path, segments):
    for steps in segments:
        writer = start_writer(path)
        written(
            writer, *(new_batch(int(s), rows=1, catalogue=i == 0, complete=s % 1 == 0) for i, s in enumerate(steps))
        )
        writer.close()
    return open_run(path).rank(0)


@pytest.mark.parametrize(
    ("segments", "steps", "of_segments"),
    [
        ([[0, 1, 2], [3, 4]], [0, 1, 2, 3, 4], [0, 0, 0, 1, 1]),
        ([[0, 1, 2, 3], [2, 3]], [0, 1, 2, 3], [0, 0, 1, 1]),
        ([[0, 1, 2, 3], [2]], [0, 1, 2], [0, 0, 1]),
        ([[0, 1, 2, 3], [0, 1]], [0, 1], [1, 1]),
        ([[0, 1, 2.5], [2, 3]], [0, 1, 2, 3], [0, 0, 1, 1]),
        ([[0, 1, 2], [1.5]], [0, 1, 2], [0, 0, 0]),
        ([[0, 1], [2.5]], [0, 1, 2], [0, 0, 1]),
        ([[0, 1, 2], [1, 2], [2]], [0, 1, 2], [0, 1, 2]),
    ],
)
def test_restart_supersedes_later_steps(tmp_path, start_writer, new_batch, segments, steps, of_segments):
    """A step such as 2.5 is step 2, killed before its end."""
    rank = written_steps(start_writer, new_batch, tmp_path / "run", segments)

    assert rank.records["step"].tolist() == steps
    assert rank.records["segment"].tolist() == of_segments
    assert rank.num_records == len(steps)
    assert rank.num_superseded == sum(map(len, segments)) - len(steps)
    assert rank.steps == tuple(sorted(set(steps)))


def test_several_processes_start_at_once(tmp_path):
    command = [sys.executable, str(PROGRAM), str(tmp_path / "run"), "7", "6"]
    processes = [subprocess.Popen([*command, rank], stdout=subprocess.DEVNULL) for rank in ("0", "1", "1")]
    assert [process.wait(60) for process in processes] == [0, 0, 0]

    run = open_run(tmp_path / "run")

    assert run.ranks == (0, 1)
    assert run.rank(0).complete_steps == tuple(range(6))
    assert run.rank(1).num_records == run.rank(1).num_superseded == 21
    assert sorted(p.name for p in run.path.iterdir()) == ["ranks", "run.json"]


def test_batches_can_be_read_one_by_one(tmp_path, start_writer, new_batch):
    for first in (0, 3):  # a restart that goes back to step 3
        writer = start_writer(tmp_path / "run")
        for step in range(first, first + 5):
            writer.submit(new_batch(step, rows=step + 1, catalogue=step == first))
        writer.close()
    rank = open_run(tmp_path / "run").rank(0)
    stream = rank.record_stream()
    segments, steps, rows = stream.batches[:, :3].T.tolist()
    assert (segments, steps, rows) == ([0] * 3 + [1] * 5, list(range(8)), list(range(1, 9)))
    for which in (np.ones(8, bool), np.arange(8) % 3 != 1, np.zeros(8, bool)):
        parts = [{name: column[:0] for name, column in rank.records.items()}, *stream.read(which)]
        expected = np.repeat(which, rows)
        for name, column in rank.records.items():
            np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), column[expected])


def test_two_hundred_thousand_sites_open_within_a_second(tmp_path, start_writer):
    count = 200_000
    nodes = [
        Node(f"model.layers.{i // 20}.mlp.part{i % 20}", NodeKind.MODULE, "Linear", "model") for i in range(count // 4)
    ]
    sites = [SiteRow(i // 4, Direction.FORWARD, Role.OUTPUT, str(i % 4), 0) for i in range(count)]
    records = {
        "seq": np.arange(count),
        "step": np.zeros(count),
        "micro_step": np.zeros(count),
        "site": np.arange(count),
    }
    records |= {name: np.zeros(count) for name in ("form", "status", "has", "norm")} | {"tensor": np.full(count, -1)}
    batches = [Batch(0, nodes, sites, [Form("fp32", (1,))], records={n: c[:100] for n, c in records.items()})]
    batches += [Batch(0, records={n: c[i : i + 4000] for n, c in records.items()}) for i in range(100, count, 4000)]
    written(start_writer(tmp_path / "run"), *batches)

    begin = time.process_time()
    rank = open_run(tmp_path / "run").rank(0)
    found = (len(rank.records["norm"]), len(rank.sites), len(rank.node_paths))
    seconds = time.process_time() - begin

    assert found == (count, count, count // 4)
    assert seconds < 1


def test_run_converts_to_arrow_and_pandas_with_names(tmp_path, start_writer, new_batch):
    pytest.importorskip("pyarrow", exc_type=ImportError)
    pytest.importorskip("pandas", exc_type=ImportError)
    run = written(start_writer(tmp_path / "run"), new_batch(0))

    table, frame = run.to_arrow(), run.to_pandas()

    assert table["direction"].to_pylist() == frame["direction"].tolist() == ["forward"] * 3
    assert table["norm"].to_pylist() == frame["norm"].tolist() == [0, 1, 2]
    assert frame["shape"].tolist() == ["2x3"] * 3
    assert "segment" in frame


def test_repr_tells_what_is_there(tmp_path, start_writer, new_batch):
    run = written(start_writer(tmp_path / "run"), *(new_batch(step, catalogue=step == 0) for step in (0, 1, 2, 9)))

    assert repr(run) == f"<Run {tmp_path / 'run'}: numpy, rank 0, steps 0-2, 9, 12 records>"


def test_reading_changes_nothing(tmp_path, start_writer, new_batch):
    writer = start_writer(tmp_path / "run")
    written(writer, new_batch(0))
    writer.close()
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}

    open_run(tmp_path / "run").rank(0).table()

    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before


def test_tensors_of_dropped_files_are_told_by_name(tmp_path, start_writer, new_batch):
    batch = new_batch(0, tensors=[SavedTensor(0, "fp32", (2, 3), np.ones((2, 3), np.float32))])
    batch.records |= {"tensor": np.zeros(3), "has": np.full(3, HAS["tensors"])}
    rank = written(start_writer(tmp_path / "run", what={"tensors"}), batch).rank(0)
    np.testing.assert_array_equal(rank.tensor(2), np.ones((2, 3)))
    next((tmp_path / "run").rglob("*.safetensors")).unlink()

    with pytest.raises(RunError, match=r"0001-step-000000-00000\.safetensors"):
        open_run(tmp_path / "run").rank(0).tensor(0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda p: None, "no such directory"),
        (lambda p: p.write_text(""), "a run is a directory, this is a file"),
        (lambda p: p.mkdir(), "not a run"),
        (
            lambda p: (p / "inner").mkdir(parents=True) or (p / "inner" / "run.json").write_text(""),
            "did you mean .*inner",
        ),
        (lambda p: p.mkdir() or (p / "run.json").write_text('{"form'), "run.json: damaged"),
        (lambda p: p.mkdir() or (p / "run.json").write_text("[]"), "run.json: damaged"),
        (lambda p: p.mkdir() or (p / "run.json").write_bytes(b"\0" * 50), "run.json: damaged"),
        (lambda p: p.mkdir() or (p / "run.json").write_text('{"format": "x", "schema": 2}'), "not written by msprobe"),
    ],
)
def test_what_is_no_run_is_refused_clearly(tmp_path, make, message):
    make(tmp_path / "run")

    with pytest.raises(RunError, match=message):
        open_run(tmp_path / "run")


def test_empty_run_is_refused_clearly(tmp_path):
    content = {"format": "msprobe-run", "schema": 2, "started": 0, "header": {}}
    (tmp_path / "run.json").write_text(json.dumps(content))

    with pytest.raises(RunError, match="empty run"):
        open_run(tmp_path)


def test_missing_rank_is_refused_clearly(tmp_path, start_writer, new_batch):
    run = written(start_writer(tmp_path / "run"), new_batch(0))

    with pytest.raises(RunError, match="no rank 3; it holds rank 0"):
        run.rank(3)


@pytest.mark.parametrize("file", ["run.json", "ranks/00000/segment-0001.json"])
def test_newer_version_says_what_to_do(tmp_path, start_writer, new_batch, file):
    written(start_writer(tmp_path / "run"), new_batch(0))
    path = tmp_path / "run" / file
    path.write_text(path.read_text().replace('"schema":2', '"schema":3'))

    with pytest.raises(RunVersionError, match=r"newer msprobe \(schema 3, this one reads up to 2\); upgrade"):
        open_run(tmp_path / "run").rank(0)


def test_older_version_says_what_to_do(tmp_path, start_writer, new_batch):
    written(start_writer(tmp_path / "run"), new_batch(0))
    path = tmp_path / "run" / "run.json"
    path.write_text(path.read_text().replace('"schema":2', '"schema":1'))

    with pytest.raises(RunVersionError, match=r"older msprobe \(schema 1, this one reads 2\); read it with"):
        open_run(tmp_path / "run")
    with pytest.raises(RunVersionError, match=r"older msprobe recorded here \(schema 1.*give another directory"):
        start_writer(tmp_path / "run")


def test_a_second_recording_into_a_run_says_that_it_is_added(tmp_path, start_writer, new_batch):
    written(start_writer(tmp_path / "run"), new_batch(0))
    with pytest.warns(RuntimeWarning, match="is added to it"):
        start_writer(tmp_path / "run").close()


def test_a_program_that_changes_its_directory_still_writes_into_its_run(tmp_path, monkeypatch, start_writer, new_batch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    writer = start_writer("run")
    writer.submit(new_batch(0))
    monkeypatch.chdir(tmp_path / "elsewhere")
    writer.submit(new_batch(1, catalogue=False))
    writer.close()
    assert open_run(tmp_path / "run").rank(0).steps == (0, 1)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_batches_that_were_verified_are_not_checked_again(tmp_path, start_writer, new_batch):
    writer = start_writer(tmp_path / "run")
    for step in range(3):
        writer.submit(new_batch(step, catalogue=step == 0))
    writer.close()
    folder = tmp_path / "run" / "ranks" / "00000"
    commit = json.loads((folder / "commits-0001").read_text().splitlines()[1])
    data = bytearray((folder / "records-0001.arrows").read_bytes())
    data[commit["ends"]["records"] - commit["bytes"]["records"]] ^= 1
    (folder / "records-0001.arrows").write_bytes(data)
    for verified in ([], [1]):
        with pytest.raises(RunError, match="damaged"):
            _ = RankRun(folder, verified=verified).num_records
    assert RankRun(folder, verified=[2]).num_records == 9
