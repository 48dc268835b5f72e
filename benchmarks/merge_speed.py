"""Measures what comparing two runs of many ranks as whole models costs: ``python -m benchmarks.merge_speed``.

Both sides are spread over tensor- and data-parallel ranks and merged. The comparison runs in a process of its own; CPU
seconds and peak memory are what the operating system counted for it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.compare_speed import measure
from benchmarks.synthetic_run import FAULT_STEP, FORMS, Shape, write_run
from msprobe.core.placement import Layout
from msprobe.core.run.batch import RankInfo
from msprobe.core.sites import Form

#: About 2,000 sites a rank, 10 steps.
FULL = Shape(layers=26, steps=10)
MOST_CPU_SECONDS = 60.0
MOST_BYTES = 3 * 10**9


@dataclass(frozen=True, slots=True)
class Mesh:
    """How many ranks there are along each axis."""

    data: int = 8
    tensor: int = 8

    @property
    def ranks(self) -> int:
        """Counts the ranks."""
        return self.data * self.tensor


def write_parallel_run(path: Path, shape: Shape, mesh: Mesh, *, side: str) -> Path:
    """Writes a run whose parameters are cut over tensor-parallel ranks and whose batch is cut over all others."""
    for rank in range(mesh.ranks):
        data, tensor = divmod(rank, mesh.tensor)
        places = {"dp": (data, mesh.data), "tp": (tensor, mesh.tensor)}
        forms = [_part(FORMS[0], "dp", data, mesh.data), _part(FORMS[1], "tp", tensor, mesh.tensor)]
        write_run(path, shape, side=side, rank=RankInfo(rank, mesh.ranks, places), forms=forms)
    return path


def _part(form: Form, axis: str, coordinate: int, size: int) -> Form:
    """Makes a form that of one of several parts along the first dimension."""
    layout = Layout.whole((form.shape[0] * size, *form.shape[1:])).shard(axis, 0, coordinate=coordinate, parts=size)
    return Form(form.dtype, form.shape, "dense", layout.keyed_globally().to_json())


def command(candidate: Path, reference: Path, out: Path) -> list[str]:
    """Gives the command line that compares the pair as whole models."""
    start = [sys.executable, "-m", "msprobe", "compare", str(candidate), str(reference), "--merge"]
    return [*start, "--out", str(out), "--no-progress", "--quiet"]


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints a table; returns 1 when a limit is broken or the fault is not found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.merge_speed", description=__doc__)
    parser.add_argument("--layers", type=int, default=FULL.layers)
    parser.add_argument("--steps", type=int, default=FULL.steps)
    parser.add_argument("--data", type=int, default=8, help="data-parallel ranks")
    parser.add_argument("--tensor", type=int, default=8, help="tensor-parallel ranks")
    arguments = parser.parse_args(argv)
    shape, mesh = Shape(arguments.layers, arguments.steps), Mesh(arguments.data, arguments.tensor)
    print(f"{mesh.ranks} ranks a side, {shape.records // shape.steps} sites, {shape.steps} steps")
    with tempfile.TemporaryDirectory(prefix="merge-speed-") as folder:
        sides = [write_parallel_run(Path(folder) / side, shape, mesh, side=side) for side in ("candidate", "reference")]
        out = Path(folder) / "out"
        cost = measure(command(sides[0], sides[1], out))
        first = json.loads((out / "summary.json").read_text())["sources"][:1]
    named = f"{first[0]['node']} step {first[0]['step']}" if first else "none"
    print(f"CPU {cost.cpu_seconds:.1f} s, wall {cost.wall_seconds:.1f} s, peak {cost.peak_bytes / 1e6:.0f} MB; {named}")
    found = named == f"{shape.fault} step {FAULT_STEP}" and cost.exit_code == 1
    return 0 if found and cost.cpu_seconds <= MOST_CPU_SECONDS and cost.peak_bytes <= MOST_BYTES else 1


if __name__ == "__main__":
    sys.exit(main())
