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
