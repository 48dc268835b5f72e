"""Torn ends are left out and counted; other damage is refused by name."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msprobe.core.errors import RunError
from msprobe.core.run.reader import open_run

SHARED_FOLDER = settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def run(tmp_path, start_writer, new_batch):
    """The rank folder of a run of four steps."""
    writer = start_writer(tmp_path / "run", what={"statistics"})
    for step in range(4):
        writer.submit(new_batch(step, catalogue=step == 0))
    assert writer.flush(10)
    return tmp_path / "run"


def file_of(run, name):
    return run / "ranks" / "00000" / name


def steps_of(run):
    return open_run(run).rank(0).records["step"].tolist()


def test_bytes_without_a_commit_are_left_out(run):
    path = file_of(run, "records-0001.arrows")
    path.write_bytes(path.read_bytes() + b"half a batch")

    assert steps_of(run) == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert open_run(run).rank(0).uncommitted_bytes == len("half a batch")


@SHARED_FOLDER
@given(st.data())
def test_torn_commits_end_the_run_before_them(run, data):
    path = file_of(run, "commits-0001")
    whole = path.read_bytes()
    cut = data.draw(st.integers(0, len(whole)))
    zeros = data.draw(st.sampled_from([0, 1, 100]))
    path.write_bytes(whole[:cut] + b"\0" * zeros)
    try:
        steps = whole[:cut].count(b"\n")
        assert steps_of(run) == np.repeat(np.arange(steps), 3).tolist()
    finally:
        path.write_bytes(whole)


@pytest.mark.parametrize("table", ["records", "sites"])
def test_zeros_at_the_end_do_not_read_as_data(run, start_writer, new_batch, tmp_path, table):
    path = file_of(run, f"{table}-0001.arrows")
    whole = path.read_bytes()
    path.write_bytes(whole[:-100] + b"\0" * 100)

    rank = open_run(run).rank(0)

    left = {"records": 3, "sites": 0}[table]
    assert rank.records["step"].tolist() == np.repeat(np.arange(left), 3).tolist()
    assert rank.torn_batches == 4 - left
    assert "torn" in repr(open_run(run))


def test_damage_in_the_middle_is_refused_by_name(run):
    path = file_of(run, "records-0001.arrows")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)

    with pytest.raises(RunError, match=r"records-0001\.arrows: damaged: batch \d of 4.*copy it again"):
        steps_of(run)


@pytest.mark.parametrize("length", [0, 10, 1500])
def test_truncated_file_is_refused_with_a_way_out(run, length):
    path = file_of(run, "records-0001.arrows")
    path.write_bytes(path.read_bytes()[:length])

    with pytest.raises(RunError, match=r"records-0001\.arrows: cut short.*keep the first \d lines of commits-0001"):
        steps_of(run)


def test_missing_file_is_refused_by_name(run):
    file_of(run, "sites-0001.arrows").unlink()

    with pytest.raises(RunError, match=r"sites-0001\.arrows: cannot be read"):
        steps_of(run)


def test_damaged_commit_before_whole_ones_is_refused(run):
    path = file_of(run, "commits-0001")
    lines = path.read_bytes().split(b"\n")
    lines[1] = lines[1][:20]
    path.write_bytes(b"\n".join(lines))

    with pytest.raises(RunError, match=r"commits-0001: line 2 is damaged"):
        steps_of(run)


def test_lost_commits_file_leaves_an_empty_segment(run):
    file_of(run, "commits-0001").unlink()

    assert steps_of(run) == []
    assert open_run(run).steps == ()
