"""Measures what recording costs a training: ``python -m benchmarks.recording [--quick] [--page docs/benchmarks.md]``.

One row in half a minute: ``python -m benchmarks.recording --only "module level, statistics" --quick --no-peer``.

Each line of work runs in three processes: without a tool, under msprobe, under mindstudio-probe. They take turns within
one run (A/B/C/A/B/C...), each round gives one ratio of CPU time per step, and the table has their median and range. CPU
time is that of the whole process, the writer's thread included.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.recorders.page import page
from benchmarks.recorders.processes import Process

Size = tuple[int, int, int]
#: Hidden size, layers, vocabulary.
SMALL, LARGE, HUNDRED_MILLION = (256, 4, 2048), (512, 8, 2048), (768, 12, 32_000)
#: CPU seconds that a turn of one process lasts, about, and steps before the first.
TURN = 0.5
WARM_UP = 3
#: Rounds where a step takes seconds.
FEW_ROUNDS = 5
#: The idle probe is measured until its ratio is known this well, or for so many seconds.
IDLE_HALF_WIDTH, IDLE_SECONDS, IDLE_TURN, LEAST_PAIRS = 0.003, 90.0, 0.25, 40


@dataclass(frozen=True, slots=True)
class Work:
    """One line of the table: what each tool is asked to do, and on which models."""

    name: str
    msprobe: dict[str, Any]
    peer: tuple[str, dict[str, Any]] | None = None
    sizes: tuple[Size, ...] = (SMALL,)
    #: What the ratio must not exceed, on the first model and on the others.
    must: str = ""
    #: The probe is attached and does not record.
    is_idle: bool = False

    def must_of(self, size: Size) -> str:
        """Gives what the ratio on one model must not exceed."""
        return self.must.split(" / ")[0 if size == SMALL else -1]


def _dump(level: str, task: str = "statistics", **settings: str) -> tuple[str, dict[str, Any]]:
    return "mindstudio", {"task": task, "level": level, "settings": settings}


_MONITOR = ("mindstudio-monitor", {"ops": ["norm", "min", "max", "mean"]})
_ONLY_GRADIENTS = {"what": "statistics", "inputs": False, "outputs": False, "parameters": False, "buffers": False}
_BOTH = (SMALL, LARGE)

WORK = (
    Work("module level, statistics", {"what": "statistics"}, _dump("L0"), _BOTH, "1.2 / 1.1"),
    Work("op level, statistics", {"level": "op", "what": "statistics"}, _dump("L1"), _BOTH, "3 / 2"),
    Work("module level, statistics + sketch", {}, None, _BOTH, "1.35 / 1.2"),
    Work("module level, checksums", {"what": "checksums"}, _dump("L0", summary_mode="md5"), _BOTH, "1.4 / 1.25"),
    Work("mix, checksums", {"level": "mix", "what": "checksums"}, _dump("mix", summary_mode="md5"), _BOTH, "3.5"),
    Work("module level, tensors", {"what": "tensors"}, _dump("L0", "tensor"), (SMALL,), "2"),
    Work("mix, tensors", {"level": "mix", "what": "tensors"}, _dump("mix", "tensor"), (SMALL,), "6"),
    Work("attached, not recording", {}, None, (SMALL,), "1 +- 0.005", is_idle=True),
    Work("weight gradients only", _ONLY_GRADIENTS, _MONITOR, (SMALL, HUNDRED_MILLION), "1.1 / 1.02"),
    Work("preset monitor: all kinds, alerts", {"preset": "monitor"}, None, (SMALL, HUNDRED_MILLION), "1.6 / 1.1"),
)


@dataclass(slots=True)
class Cost:
    """What one tool cost: ratios to the process without a tool, one for each round; the rest a step."""

    cpu: list[float] = field(default_factory=list)
    wall: list[float] = field(default_factory=list)
    #: The fastest turn against the fastest one without a tool: what others do to the machine counts least here.
    fastest: float = 0.0
    peak_bytes: int = 0
    disk_bytes: float = 0.0
    records: int = 0
    #: Of msprobe: seconds in which tensors are read, how many, their bytes, and how long one plain read of those takes.
    #: Where tensors are saved also how long it takes to write their bytes once.
    measuring: dict[str, float] = field(default_factory=dict)
    #: 95 % interval of the median ratio, where there are enough rounds.
    interval: tuple[float, float] | None = None


@dataclass(slots=True)
class Line:
    """The costs of one line of work on one model; ``off`` is the CPU seconds of a step without a tool."""

    work: str
    size: Size
    must: str
    off: float
    costs: dict[str, Cost]


def measure(work: Work, off: Process, size: Size, *, rounds: int, folder: Path) -> Line:
    """Runs one line of work on one model; ``off`` is the training of that model without a tool."""
    if work.is_idle:
        return _measure_idle(work, size, folder)
    rounds = min(rounds, FEW_ROUNDS) if size == HUNDRED_MILLION else rounds
    processes = {"off": off, "msprobe": Process("msprobe", size, folder / "msprobe", work.msprobe)}
    if work.peer is not None:
        processes["peer"] = Process(work.peer[0], size, folder / "peer", work.peer[1])
    try:
        return _take_turns(work, size, processes, rounds)
    finally:
        for process in list(processes.values())[1:]:
            process.close()


def _take_turns(work: Work, size: Size, processes: dict[str, Process], rounds: int) -> Line:
    steps = {}
    for name, process in processes.items():
        process.ask(f"steps {WARM_UP}")
        steps[name] = max(1, round(TURN / process.ask("steps 1")["cpu"]))
    before = {name: process.written() for name, process in processes.items()}
    costs = {name: Cost() for name in processes if name != "off"}
    off: list[float] = []
    seconds: dict[str, list[float]] = {name: [] for name in costs}
    for _ in range(rounds):
        turns = {name: _turn(process, steps[name]) for name, process in processes.items()}
        off.append(turns["off"]["cpu"])
        for name, cost in costs.items():
            seconds[name].append(turns[name]["cpu"])
            cost.cpu.append(turns[name]["cpu"] / turns["off"]["cpu"])
            cost.wall.append(turns[name]["wall"] / turns["off"]["wall"])
    for name, cost in costs.items():
        cost.fastest = min(seconds[name]) / min(off)
        cost.disk_bytes = (processes[name].written() - before[name]) / (rounds * steps[name])
    costs["msprobe"].measuring = _split(processes, saves="tensors" in work.msprobe.get("what", ""))
    _finish(processes, costs)
    return Line(work.name, size, work.must_of(size), statistics.median(off), costs)


def _turn(process: Process, steps: int) -> dict[str, float]:
    return {name: seconds / steps for name, seconds in process.ask(f"steps {steps}").items()}


def _measure_idle(work: Work, size: Size, folder: Path) -> Line:
    """Takes turns without and with an idle probe inside one process, where nothing else differs between them."""
    process = Process("off", size, folder / "idle", {})
    try:
        process.ask(f"steps {WARM_UP}")
        steps = max(1, round(IDLE_TURN / process.ask("steps 1")["cpu"]))
        pairs: list[dict[str, float]] = []
        end = time.monotonic() + IDLE_SECONDS
        while time.monotonic() < end:
            pairs.append(process.ask(f"idle {steps}"))
            if len(pairs) >= LEAST_PAIRS and _half_width(_interval(_ratios(pairs))) <= IDLE_HALF_WIDTH:
                break
    finally:
        process.close()
    off = [pair["off"] / steps for pair in pairs]
    fastest = min(pair["idle"] for pair in pairs) / min(pair["off"] for pair in pairs)
    cost = Cost(cpu=_ratios(pairs), fastest=fastest, interval=_interval(_ratios(pairs)))
    return Line(work.name, size, work.must_of(size), statistics.median(off), {"msprobe": cost})


def _ratios(pairs: Sequence[dict[str, float]]) -> list[float]:
    return [pair["idle"] / pair["off"] for pair in pairs]


def _interval(ratios: Sequence[float]) -> tuple[float, float]:
    """Gives the 95 % interval of the median that needs no assumption about the spread: by order statistics."""
    ordered, count = sorted(ratios), len(ratios)
    low = max(0, math.floor(count / 2 - 0.98 * math.sqrt(count)))
    return ordered[low], ordered[count - 1 - low]


def _half_width(interval: tuple[float, float]) -> float:
    return (interval[1] - interval[0]) / 2


def _split(processes: dict[str, Process], *, saves: bool) -> dict[str, float]:
    found: dict[str, float] = processes["msprobe"].ask("split 3")
    found["read"] = processes["off"].ask(f"read {int(found['bytes'])}")["seconds"]
    if saves:
        found["write"] = processes["off"].ask(f"write {int(found['bytes'])}")["seconds"]
    return found


def _finish(processes: dict[str, Process], costs: dict[str, Cost]) -> None:
    ends = {name: process.ask("finish") for name, process in processes.items()}
    for name, cost in costs.items():
        cost.peak_bytes = ends[name]["peak"] - ends["off"]["peak"]
        cost.records = ends[name].get("records", 0)


def machine() -> dict[str, Any]:
    """Describes the machine, and how busy others kept it."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    found = {"processor": name or platform.processor(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    return {**found, "python": platform.python_version(), "system": platform.system()}


def main(argv: Sequence[str] | None = None) -> int:
    """Measures every line, prints the table, and writes it where it is asked to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recording", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the small model only, few rounds")
    parser.add_argument("--rounds", type=int, default=0, help="turns of each process (9; with --quick 3)")
    parser.add_argument("--only", default="", help="lines of work whose name holds this text")
    parser.add_argument("--no-peer", action="store_true", help="leave mindstudio-probe out")
    parser.add_argument("--page", type=Path, help="write the table as a page of the documentation")
    parser.add_argument("--json", type=Path, default=Path("runs/recording.json"), help="write all numbers")
    arguments = parser.parse_args(argv)
    rounds = arguments.rounds or (3 if arguments.quick else 9)
    work = [one for one in WORK if arguments.only in one.name]
    if arguments.no_peer:
        work = [replace(one, peer=None) for one in work]
    lines: list[dict[str, Any]] = []
    start = machine()
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    for line in _lines(work, (SMALL,) if arguments.quick else (SMALL, LARGE, HUNDRED_MILLION), rounds):
        lines.append(asdict(line))
        print(page(lines, start) if len(lines) == 1 else page(lines, start).splitlines()[-1], flush=True)
        arguments.json.write_text(json.dumps({"machine": start, "rounds": rounds, "lines": lines}, indent=1))
        if arguments.page:
            arguments.page.write_text(page(lines, start, rounds=rounds))
    return 0


def _lines(work: Sequence[Work], sizes: Sequence[Size], rounds: int) -> Iterator[Line]:
    for size in sizes:
        with tempfile.TemporaryDirectory(prefix="recording-") as folder:
            off = Process("off", size, Path(folder) / "off", {})
            for one in work:
                if size in one.sizes:
                    yield measure(one, off, size, rounds=rounds, folder=Path(folder))
            off.close()


if __name__ == "__main__":
    sys.exit(main())
