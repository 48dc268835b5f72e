"""Whatever happens to the disk, training goes on, and what is missing is written down where it can be."""

import json
import os
import resource
import shutil
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from msprobe.core.errors import RunError, RunVersionError
from msprobe.core.records import HAS
from msprobe.core.run.batch import Event, SavedTensor
from msprobe.core.run.reader import open_run
from msprobe.core.sites import Node, NodeKind

STOPPED = pytest.warns(RuntimeWarning, match=r"msprobe records nothing: .*Training goes on\.")


@contextmanager
def largest_file(num_bytes):
    """Lets no file of this process grow beyond a size: writing fails as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def size_of(run, table):
    return (run / "ranks" / "00000" / f"{table}-0001.arrows").stat().st_size


def gaps(run):
    return [event for event in open_run(run).rank(0).events if event.kind == "gap"]


def test_full_disk_loses_its_steps_only_and_says_so(tmp_path, start_writer, new_batch):
    run = tmp_path / "run"
    writer = start_writer(run)
    writer.submit(new_batch(0))
    assert writer.flush(10)
    lost = new_batch(1, catalogue=False, nodes=[Node("late", NodeKind.MODULE, "Late", "")])
    with largest_file(size_of(run, "records") + 50), STOPPED:
        writer.submit(lost)
        assert not writer.flush(10)
    assert "File too large" in writer.failure
    assert gaps(run)[0].message.startswith("writing stopped")

    writer.submit(new_batch(2, catalogue=False))

    assert writer.flush(10)
    assert writer.failure is None
    rank = open_run(run).rank(0)
    assert rank.steps == (0, 2)
    assert rank.node_paths == ["", "late"]
    assert [gap.message for gap in gaps(run)[1:]] == ["3 records of step 1 were lost while writing failed"]
    assert gaps(run)[1].count == 3


def test_disk_without_room_for_tensors_keeps_the_statistics(tmp_path, start_writer, new_batch):
    run = tmp_path / "run"
    writer = start_writer(run, what={"statistics", "tensors"})
    batch = new_batch(0, tensors=[SavedTensor(0, "uint8", (10**6,), bytes(10**6))])
    batch.records |= {"tensor": np.array([0, 0, -1]), "has": np.array([17, 17, 1])}
    with largest_file(500_000):
        writer.submit(batch)
        assert writer.flush(10)

    rank = open_run(run).rank(0)

    assert rank.records["norm"].tolist() == [0, 1, 2]
    assert rank.records["tensor"].tolist() == [-1, -1, -1]
    assert not (rank.records["has"] & HAS["tensors"]).any()
    assert [(e.kind, e.count) for e in rank.events] == [("drop", 1)]
    assert list((run / "ranks" / "00000" / "tensors").iterdir()) == []


def test_really_full_disk_does_not_stop_training(tmp_path, start_writer, new_batch):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no small disk can be mounted here")
    try:
        writer = start_writer(disk / "run")
        with STOPPED:
            for step in range(40):
                writer.submit(new_batch(step, rows=20, catalogue=step == 0))
            assert not writer.flush(10)
        assert "No space left" in writer.failure
        writer.close()
        rank = open_run(disk / "run").rank(0)
        assert rank.steps == tuple(range(len(rank.steps)))
        assert 0 < len(rank.steps) < 40
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_deleted_directory_is_noticed_once(tmp_path, start_writer, new_batch):
    writer = start_writer(tmp_path / "run")
    writer.submit(new_batch(0))
    assert writer.flush(10)
    shutil.rmtree(tmp_path / "run")

    with STOPPED as warned:
        for step in range(1, 4):
            writer.submit(new_batch(step, catalogue=False))
        assert not writer.flush(10)
        writer.close()

    assert "deleted" in writer.failure
    assert len(warned) == 1
    assert not (tmp_path / "run").exists()


def test_directory_that_cannot_be_made_stops_nothing(tmp_path, start_writer, new_batch):
    (tmp_path / "file").write_text("")
    with STOPPED:
        writer = start_writer(tmp_path / "file" / "run")

    writer.submit(new_batch(0))

    assert not writer.flush(10)
    assert "Not a directory" in writer.failure


def test_warning_turned_into_an_error_does_not_reach_training(tmp_path, start_writer, new_batch):
    (tmp_path / "file").write_text("")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        writer = start_writer(tmp_path / "file" / "run")
        writer.submit(new_batch(0))

    assert writer.failure is not None


def test_full_queue_drops_tensors_first_and_says_so(tmp_path, start_writer, new_batch):
    size = 32 * 2**20
    writer = start_writer(tmp_path / "run", what={"statistics", "tensors"}, queue_bytes=size + 10_000, patience=0)
    for number in range(3):
        batch = new_batch(
            0, catalogue=number == 0, rows=1, tensors=[SavedTensor(number, "uint8", (size,), bytes(size))]
        )
        batch.records |= {"tensor": np.array([number]), "has": np.array([17])}
        writer.submit(batch)
    assert writer.flush(60)

    rank = open_run(tmp_path / "run").rank(0)

    assert rank.records["norm"].tolist() == [0, 0, 0]
    assert rank.records["tensor"].tolist() == [0, -1, -1]
    saved = rank.tensor_bits(0)
    assert saved is not None
    assert saved[1].nbytes == size
    assert rank.tensor(1) is None
    assert [(e.kind, e.count) for e in rank.events] == [("drop", 1)] * 2


def test_queue_without_any_room_drops_records_but_no_names(tmp_path, start_writer, new_batch):
    size = 32 * 2**20
    writer = start_writer(tmp_path / "run", what={"statistics", "tensors"}, queue_bytes=1, patience=0)
    writer.submit(new_batch(0, tensors=[SavedTensor(0, "uint8", (size,), bytes(size))]))
    writer.submit(new_batch(0, catalogue=False, nodes=[Node("late", NodeKind.MODULE, "Late", "")]))
    assert writer.flush(60)

    rank = open_run(tmp_path / "run").rank(0)

    assert len(rank.records["seq"]) == 3
    assert rank.node_paths == ["", "late"]
    assert [e.message for e in rank.events] == ["records dropped: the disk is slower than the recording"]
    assert rank.events[0].count == 3


def test_waiting_for_room_is_bounded(tmp_path, start_writer, new_batch):
    size = 64 * 2**20
    writer = start_writer(tmp_path / "run", what={"tensors"}, queue_bytes=size, patience=0.01)
    writer.submit(new_batch(0, tensors=[SavedTensor(0, "uint8", (size,), bytes(size))]))

    begin = time.monotonic()
    writer.submit(new_batch(0, catalogue=False, tensors=[SavedTensor(1, "uint8", (size,), bytes(size))]))

    assert time.monotonic() - begin < 1


def test_forked_child_writes_nothing(tmp_path, start_writer, new_batch):
    writer = start_writer(tmp_path / "run")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        writer.submit(new_batch(5))
        writer.close()
        os._exit(0 if not writer.flush(1) else 1)
    assert os.waitpid(child, 0)[1] == 0

    writer.submit(new_batch(0))

    assert writer.flush(10)
    assert open_run(tmp_path / "run").rank(0).steps == (0,)


def test_program_that_forgets_to_close_loses_nothing(tmp_path):
    program = Path(__file__).with_name("recording_program.py")
    code = f"import runpy; r = runpy.run_path({str(program)!r})['record']({str(tmp_path / 'run')!r}, 1, 9); "
    subprocess.run([sys.executable, "-c", code + "[next(r) for _ in range(5)]"], check=True, timeout=60)

    assert open_run(tmp_path / "run").rank(0).complete_steps == (0, 1, 2, 3, 4)


@pytest.mark.parametrize(("name", "content"), [("index.html", "mine"), ("run.json", "{}")])
def test_directory_with_something_else_is_refused_untouched(tmp_path, start_writer, name, content):
    (tmp_path / name).write_text(content)

    with pytest.raises(RunError, match="new or empty directory"):
        start_writer(tmp_path)

    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [(name, content)]


def test_file_in_place_of_a_run_is_refused(tmp_path, start_writer):
    (tmp_path / "run").write_text("mine")

    with pytest.raises(RunError, match="is a file"):
        start_writer(tmp_path / "run")


def test_newer_run_is_not_written_to(tmp_path, start_writer):
    content = json.dumps({"format": "msprobe-run", "schema": 99, "started": 0, "header": {}})
    (tmp_path / "run.json").write_text(content)

    with pytest.raises(RunVersionError, match=r"schema 99.*upgrade"):
        start_writer(tmp_path)


def test_values_that_json_cannot_hold_are_described(tmp_path, start_writer, new_batch):
    from msprobe.core.run.batch import Fact

    class Unprintable:
        def __repr__(self):
            raise RuntimeError("no")

        def __reduce__(self):
            raise TypeError("no")

    loop: list[object] = []
    loop.append(loop)
    values = [Unprintable(), {1: 2}, {(1, 2): 3}, loop, np.float32(0.5), {3, 1}, float("nan"), "x\udc80"]
    writer = start_writer(tmp_path / "run")
    writer.submit(new_batch(0, facts=[Fact(0, 0, -1, "argument", str(i), v) for i, v in enumerate(values)]))
    assert writer.flush(10)

    found = [fact.value for fact in open_run(tmp_path / "run").rank(0).facts]

    assert found[0] == "<Unprintable without a repr>"
    assert found[1:6] == [{"1": 2}, "{(1, 2): 3}", "[[...]]", 0.5, [1, 3]]
    assert found[6] != found[6]
    assert found[7] == "x\udc80"


def test_events_are_kept_with_their_counts(tmp_path, start_writer, new_batch):
    writer = start_writer(tmp_path / "run")
    events = [Event("gap", "a", 0, "layers.1", 3), Event("altered", "b", 0)]
    writer.submit(new_batch(0, events=list(events)))
    assert writer.flush(10)

    assert open_run(tmp_path / "run").rank(0).events == events
    assert open_run(tmp_path / "run").altered
