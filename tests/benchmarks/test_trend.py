"""The benchmark of trends writes, compacts and asks what it says; time is not asserted here."""

import numpy as np
import pytest

from benchmarks.trend import Size, ask, main, measure_compaction, pictures, write_run
from msprobe.core.trend.index import open_index
from msprobe.core.trend.states import State

SMALL = Size(ranks=6, steps=8, sites=9)


def test_the_full_size_is_that_of_the_promise():
    assert (Size().ranks, Size().steps, Size().sites, Size().records) == (512, 200, 300, 30_720_000)


def test_every_picture_shows_what_was_written(tmp_path):
    write_run(tmp_path / "run", SMALL)
    wall, cpu, peak = measure_compaction(tmp_path / "run")
    assert min(wall, cpu, peak) > 0
    index = open_index(tmp_path / "run")
    assert index.manifest.rows == SMALL.records
    for name, query in pictures(index).items():
        found = index.slice(query)
        assert (found.states >= State.PRESENT).all(), name
        assert np.isfinite(found.values).all(), name
        answer, memory = ask(tmp_path / "run", name, repeats=2)
        assert answer.shape == found.values.shape
        assert min(answer.cold_ms, answer.warm_ms, memory) > 0


@pytest.mark.long
def test_the_command_prints_a_line_for_each_picture(capsys):
    assert main(["--ranks", "2", "--steps", "3", "--sites", "6"]) == 0
    shown = capsys.readouterr().out
    assert "36 records of 2 ranks" in shown
    assert shown.count(" x ") >= 14
