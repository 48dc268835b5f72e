"""The launcher of the layouts and the model they share."""

from __future__ import annotations

import pytest

import msprobe
from tests.parallel.launching import run_layout


def test_a_layout_is_trained_in_its_processes_and_recorded(tmp_path):
    run = msprobe.open_run(run_layout("single", tmp_path / "run", layers=2))
    assert run.ranks == (0,)
    assert run.rank(0).steps == (0, 1)
    assert not [event for event in run.rank(0).events if event.kind in ("error", "gap")]


def test_a_failing_process_is_told_with_its_traceback(tmp_path):
    with pytest.raises(AssertionError, match=r"rank 0:(.|\n)*unexpected keyword argument 'no_such'"):
        run_layout("single", tmp_path / "run", no_such=1)


@pytest.mark.parametrize("name", ["tp2 sp", pytest.param("megatron tp2 sp", marks=pytest.mark.long)])
def test_recording_changes_no_bit_of_a_parallel_training(tmp_path, name):
    run_layout(name, tmp_path / "with", layers=2)
    run_layout(name, tmp_path / "without", layers=2, options={"off": True})
    kept = [[(tmp_path / f"{way}-weights-{rank}").read_text() for rank in range(2)] for way in ("with", "without")]
    assert kept[0] == kept[1]
    assert kept[0][0] != kept[0][1]
