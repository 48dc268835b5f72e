"""A killed process leaves what it had committed, and nothing to repair."""

import random
import runpy
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from msprobe.core.run.reader import open_run

PROGRAM = Path(__file__).with_name("recording_program.py")
STEPS = 400


@pytest.fixture(scope="module")
def twin(tmp_path_factory):
    """The rank of a run that nobody killed."""
    path = tmp_path_factory.mktemp("twin") / "run"
    assert len(list(runpy.run_path(str(PROGRAM))["record"](path, 7, STEPS))) == STEPS
    return open_run(path).rank(0)


def record_and_kill(path, *, after):
    """Kills the program some milliseconds after a step; gives the last step that it reported as completed."""
    step, delay = after
    command = [sys.executable, str(PROGRAM), str(path), "7", str(STEPS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= step:
                break
        try:
            process.wait(delay)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
        return max([step, *map(int, process.stdout.read().split())])


def assert_is_prefix(rank, twin):
    """Checks that all complete steps of a rank are as in its twin, catalogue and tensors too."""
    assert rank.complete_steps == tuple(range(len(rank.complete_steps)))
    end = len(rank.complete_steps)
    table, whole = rank.table(), twin.table()
    for name, column in table.items():
        np.testing.assert_array_equal(column[table["step"] < end], whole[name][whole["step"] < end], name)
    assert rank.nodes == twin.nodes[: len(rank.nodes)]
    assert [f for f in rank.facts if f.step < end] == [f for f in twin.facts if f.step < end]
    assert rank.stacks == twin.stacks[: len(rank.stacks)]
    np.testing.assert_array_equal(rank.edges, twin.edges[: len(rank.edges)])
    for row in np.flatnonzero(table["step"] == end - 1).tolist():
        np.testing.assert_array_equal(rank.tensor(row), twin.tensor(row))


def kill_and_check(folder, twin, seed):
    chance = random.Random(seed)
    completed = record_and_kill(folder / "run", after=(chance.randrange(80), chance.random() * 0.05))
    rank = open_run(folder / "run").rank(0)
    assert len(rank.complete_steps) >= completed
    assert_is_prefix(rank, twin)


@pytest.mark.parametrize("seed", range(5))
def test_killed_recording_lacks_at_most_one_completed_step(tmp_path, twin, seed):
    kill_and_check(tmp_path, twin, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 150))
def test_killed_recording_lacks_at_most_one_completed_step_50_times(tmp_path, twin, seed):
    kill_and_check(tmp_path, twin, seed)


def test_restart_after_a_kill_adds_a_segment(tmp_path, twin):
    record_and_kill(tmp_path / "run", after=(5, 0.0))
    before = open_run(tmp_path / "run").rank(0)
    files = {path: path.read_bytes() for path in before.path.iterdir() if path.is_file()}

    record_and_kill(tmp_path / "run", after=(12, 0.0))

    assert all(path.read_bytes() == content for path, content in files.items())
    rank = open_run(tmp_path / "run").rank(0)
    assert set(rank.records["segment"]) == {1}
    assert rank.num_superseded > 0
    table, whole = rank.table(), twin.table()
    for name in ("node", "step", "norm", "nan", "shape"):
        np.testing.assert_array_equal(table[name][table["step"] < 12], whole[name][whole["step"] < 12], name)
