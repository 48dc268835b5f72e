"""Measures what comparing two runs of 200,000 records a side costs: ``python -m benchmarks.compare_speed``.

Half of the names differ by a mapping. Each comparison runs in a process of its own; CPU seconds and peak memory are
what the operating system counted for it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.synthetic_run import FAULT_STEP, MAPPING, Shape, write_run

#: About 200,000 records a side.
FULL = Shape(layers=64, steps=40)
MOST_CPU_SECONDS = 6.0
MOST_BYTES = 10**9


@dataclass(frozen=True, slots=True)
class Cost:
    """What one command cost."""

    exit_code: int
    cpu_seconds: float
    wall_seconds: float
    peak_bytes: int


def measure(command: Sequence[str]) -> Cost:
    """Runs a command to its end and gives what the system counted for it."""
    started = time.perf_counter()
    pid = os.posix_spawn(command[0], list(command), os.environ)
    _, status, usage = os.wait4(pid, 0)
    unit = 1 if sys.platform == "darwin" else 1024
    return Cost(
        os.waitstatus_to_exitcode(status),
        usage.ru_utime + usage.ru_stime,
        time.perf_counter() - started,
        usage.ru_maxrss * unit,
    )


def write_pair(folder: Path, shape: Shape) -> tuple[Path, Path, Path]:
    """Writes candidate, reference and mapping file."""
    candidate, reference, mapping = folder / "candidate", folder / "reference", folder / "layers.yaml"
    write_run(candidate, shape, side="candidate")
    write_run(reference, shape, side="reference")
    mapping.write_text(MAPPING)
    return candidate, reference, mapping


def command(pair: tuple[Path, Path, Path], out: Path, *options: str) -> list[str]:
    """Gives the command line that compares the pair."""
    candidate, reference, mapping = map(str, pair)
    start = [sys.executable, "-m", "msprobe", "compare", candidate, reference]
    return [*start, "--mapping", mapping, "--out", str(out), "--no-progress", *options]


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints a table; returns 1 when a limit is broken or the fault is not found."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.compare_speed", description=__doc__)
    parser.add_argument("--layers", type=int, default=FULL.layers)
    parser.add_argument("--steps", type=int, default=FULL.steps)
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args(argv)
    shape = Shape(arguments.layers, arguments.steps)
    print(f"{shape.records} records a side, {shape.layers} layers, {shape.steps} steps")
    print(f"{'writes':<12}{'CPU s':>8}{'wall s':>8}{'peak MB':>9}{'out MB':>8}  first source")
    good = True
    with tempfile.TemporaryDirectory(prefix="compare-speed-") as folder:
        pair = write_pair(Path(folder), shape)
        for formats in ("table", "table,csv"):
            out = Path(folder) / formats.replace(",", "-")
            costs = [measure([*command(pair, out, "--format", formats), "--quiet"]) for _ in range(arguments.repeat)]
            cost = min(costs, key=lambda c: c.cpu_seconds)
            first = json.loads((out / "summary.json").read_text())["sources"][:1]
            named = f"{first[0]['node']} step {first[0]['step']}" if first else "none"
            size = sum(file.stat().st_size for file in out.iterdir())
            print(
                f"{formats:<12}{cost.cpu_seconds:>8.2f}{cost.wall_seconds:>8.2f}{cost.peak_bytes / 1e6:>9.0f}"
                f"{size / 1e6:>8.1f}  {named}"
            )
            found = named == f"{shape.fault} step {FAULT_STEP}" and cost.exit_code == 1
            good &= found and cost.cpu_seconds <= MOST_CPU_SECONDS and cost.peak_bytes <= MOST_BYTES
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
