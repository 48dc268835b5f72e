"""Restarts, killed ranks, ranks that never started, two jobs in one directory: all readable, all said."""

import importlib.util
import json
from pathlib import Path

import pytest

from msprobe.cli import main
from msprobe.core.scan.scanning import scan


def _simulation_class():
    path = Path(__file__).parents[1] / "trend" / "conftest.py"
    spec = importlib.util.spec_from_file_location("trend_simulation", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Simulation


Simulation = _simulation_class()


@pytest.fixture
def start(tmp_path):
    """Gives a function that starts a simulation of ``ranks`` ranks."""
    return lambda ranks=3, **settings: Simulation(tmp_path / "run", ranks=ranks, **settings)


def notes(simulation):
    found = scan(simulation.close().path)
    assert found.exit_code == 0
    return " ".join(found.notes)


def write(simulation, rank, steps, **header):
    simulation.start(rank, **header)
    for i, step in enumerate(steps):
        simulation.write(rank, step, first=not i)
    simulation.flush()


def test_a_rank_that_never_started_is_said(start):
    simulation = start(4)
    for rank in (0, 2):
        write(simulation, rank, range(3))
    assert "Ranks 1, 3 of 4 never wrote anything." in notes(simulation)


def test_a_rank_that_started_and_wrote_nothing_is_said(start):
    simulation = start(2)
    write(simulation, 0, range(3))
    simulation.start(1)
    assert "Rank 1 started and has no record." in notes(simulation)


def test_ranks_that_end_early_are_named_by_scan_and_info(start, capsys):
    simulation = start(4)
    for rank, steps in enumerate((6, 6, 3, 6)):
        write(simulation, rank, range(steps))
    assert main(["info", str(simulation.path)]) == 0
    assert "Not all ranks end at step 5: rank 2 at step 2." in capsys.readouterr().out
    assert "Not all ranks end at step 5: rank 2 at step 2." in notes(simulation)


@pytest.mark.filterwarnings("ignore:.*as a restart:RuntimeWarning")
def test_a_restart_is_told_with_what_it_superseded(start):
    simulation = start(2)
    write(simulation, 0, range(5))
    write(simulation, 1, range(5))
    write(simulation, 1, range(3, 5))
    text = notes(simulation)
    assert "Rank 1 was started 2 times; 12 records of steps done again do not count." in text
    assert "two jobs" not in text


@pytest.mark.filterwarnings("ignore:.*as a restart:RuntimeWarning")
def test_two_jobs_in_one_directory_are_suspected(start):
    simulation = start(1)
    write(simulation, 0, range(3), arguments=("a.py",))
    write(simulation, 0, range(3), arguments=("b.py",))
    assert "two jobs may have been recorded into one directory" in notes(simulation)


def test_a_batch_that_a_kill_left_unfinished_is_said(start):
    simulation = start(1)
    write(simulation, 0, range(3))
    simulation.close()
    with (simulation.path / "ranks" / "00000" / "records-0001.arrows").open("ab") as file:
        file.write(b"half a batch")
    assert "Rank 0 was killed while writing" in notes(simulation)


def test_the_command_prints_the_sentence_first_and_json_for_programs(start, capsys):
    simulation = start(1)
    write(simulation, 0, range(2))
    path = str(simulation.close().path)
    assert main(["scan", path]) == 0
    assert capsys.readouterr().out.startswith("Nothing is wrong in what was recorded (12 records, 1 rank, 2 steps).")
    assert main(["scan", path, "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["exit_code"], found["findings"], found["recorded"]["records"]) == (0, [], 12)


def test_an_empty_run_is_refused(start, capsys):
    simulation = start(1).start(0).close()
    assert main(["scan", str(simulation.path)]) == 2
    assert "holds no records" in capsys.readouterr().err
