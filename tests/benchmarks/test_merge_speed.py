"""The synthetic pair of many ranks merges and compares to the verdict that was planted; time is not asserted here."""

from __future__ import annotations

import json

from benchmarks.compare_speed import measure
from benchmarks.merge_speed import Mesh, command, write_parallel_run
from benchmarks.synthetic_run import FAULT_STEP, Shape

SMALL = Shape(layers=4, steps=3)


def test_the_measured_command_finds_the_planted_fault_in_the_whole_model(tmp_path):
    sides = [write_parallel_run(tmp_path / side, SMALL, Mesh(2, 2), side=side) for side in ("candidate", "reference")]
    cost = measure(command(sides[0], sides[1], tmp_path / "out"))
    assert cost.exit_code == 1
    first = json.loads((tmp_path / "out" / "summary.json").read_text())["sources"][0]
    assert (first["node"], first["step"], first["rank"]) == (SMALL.fault, FAULT_STEP, 0)
