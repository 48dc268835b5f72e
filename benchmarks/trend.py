"""Measures the index of trends at full size: ``python -m benchmarks.trend``.

A simulated run of many ranks is written through the real writer, compacted, and asked for every kind of slice. Cold is
a new process (its imports left out) after the page cache of the index was dropped, where the system lets us.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msprobe.core.records import Status
from msprobe.core.run.batch import Batch, RankInfo, RunHeader, SiteRow
from msprobe.core.run.writer import RunWriter
from msprobe.core.sites import Direction, Form, Node, NodeKind, Role
from msprobe.core.trend.index import Query, TrendIndex, open_index

_STATISTICS = frozenset({"statistics"})


@dataclass(frozen=True, slots=True)
class Size:
    """How large the run is; ``sites`` are those of each rank."""

    ranks: int = 512
    steps: int = 200
    sites: int = 300

    @property
    def records(self) -> int:
        """Counts all records."""
        return self.ranks * self.steps * self.sites


def write_run(path: Path, size: Size) -> None:
    """Writes statistics of noise around a level for each site, with one NaN in the middle of the run."""
    sites = [SiteRow(i // 3, *_PLACES[i % 3], 0) for i in range(size.sites)]
    nodes = [Node(f"model.layers.{i}.linear", NodeKind.MODULE, "Linear", None) for i in range(-(-size.sites // 3))]
    for rank in range(size.ranks):
        header = RunHeader(framework="synthetic")
        writer = RunWriter(path, rank=RankInfo(rank, size.ranks), header=header, what=_STATISTICS)
        generator = np.random.default_rng(rank)
        for step in range(size.steps):
            batch = Batch(step)
            if step == 0:
                batch.nodes, batch.sites, batch.forms = nodes, sites, [Form("bf16", (4096,))]
            batch.records = _records(generator, size, step)
            if (rank, step) == (size.ranks * 99 // 512, size.steps // 4):
                batch.records["nan"][size.sites // 3] = 1
            writer.submit(batch)
        writer.close()
        assert writer.failure is None, writer.failure


_PLACES = (
    (Direction.FORWARD, Role.INPUT, "0"),
    (Direction.FORWARD, Role.OUTPUT, "0"),
    (Direction.BACKWARD, Role.GRADIENT, "weight"),
)


def _records(generator: np.random.Generator, size: Size, step: int) -> dict[str, np.ndarray]:
    count = size.sites
    noise = generator.standard_normal((6, count))
    level = 1 + np.arange(count)
    counts = {name: np.zeros(count, np.int64) for name in ("nan", "pos_inf", "neg_inf", "zero")}
    return {
        "seq": np.arange(step * count, (step + 1) * count, dtype=np.uint64),
        "step": np.full(count, step, np.int64),
        "micro_step": np.zeros(count, np.int32),
        "site": np.arange(count, dtype=np.uint32),
        "form": np.zeros(count, np.uint32),
        "status": np.full(count, Status.MEASURED, np.uint8),
        "has": np.ones(count, np.uint8),
        "tensor": np.full(count, -1, np.int64),
        "min": np.float32(-4 + 0.1 * noise[0]) * level,
        "max": np.float32(4 + 0.1 * noise[1]) * level,
        "mean": 0.01 * noise[2] * level,
        "mean_abs": (0.8 + 0.01 * noise[3]) * level,
        "m2": 4096 * (1 + 0.01 * noise[4]) * level**2,
        "norm": 64 * (1 + 0.01 * noise[5]) * level,
        **counts,
    }


@dataclass(frozen=True, slots=True)
class Answer:
    """What one kind of picture cost: milliseconds in a new process, and the median of those that follow."""

    name: str
    shape: tuple[int, int]
    cold_ms: float
    warm_ms: float


def pictures(index: TrendIndex) -> dict[str, Query]:
    """Gives a query for each way to fix or pool the third axis."""
    site, step = int(index.sites.order[len(index.sites) // 3]), int(index.steps[len(index.steps) // 4])
    rank = int(index.ranks[len(index.ranks) // 2])
    return {
        "step x rank, one site": Query("step", "rank", fixed=site),
        "site x rank, one step": Query("site", "rank", fixed=step),
        "site x step, one rank": Query("site", "step", fixed=rank),
        "step x rank, all sites": Query("step", "rank"),
        "site x rank, all steps": Query("site", "rank"),
        "site x step, all ranks": Query("site", "step"),
        "step x rank, one kind, 50 x 20 pixels": Query("step", "rank", kind="activation out", width=50, height=20),
    }


def ask(path: Path, name: str, *, repeats: int = 5) -> tuple[Answer, float]:
    """Asks one query again and again; gives what it cost and the peak memory of this process in MB."""
    index = open_index(path, refresh=False)
    query = pictures(index)[name]
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        found = index.slice(query)
        times.append(1_000 * (time.perf_counter() - started))
    shape = int(found.values.shape[0]), int(found.values.shape[1])
    return Answer(name, shape, times[0], float(np.median(times[1:]))), _peak()


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_000


def measure_compaction(path: Path) -> tuple[float, float, float]:
    """Compacts a run; gives wall and CPU seconds and the peak memory in MB."""
    started, cpu = time.perf_counter(), time.process_time()
    open_index(path)
    return time.perf_counter() - started, time.process_time() - cpu, _peak()


def _drop_caches() -> bool:
    """Empties the system's page cache, where this process may."""
    try:
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("1")
    except OSError:
        return False
    return True


def _in_new_process(code: str) -> list[float]:
    start = "from pathlib import Path; import json; from benchmarks.trend import *; "
    done = subprocess.run([sys.executable, "-c", start + code], check=True, capture_output=True, text=True)
    return list(json.loads(done.stdout))


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trend", description=__doc__)
    for name, value in (("ranks", Size().ranks), ("steps", Size().steps), ("sites", Size().sites)):
        parser.add_argument(f"--{name}", type=int, default=value)
    arguments = parser.parse_args(argv)
    size = Size(arguments.ranks, arguments.steps, arguments.sites)
    with tempfile.TemporaryDirectory(prefix="trend-") as folder:
        path = Path(folder) / "run"
        started = time.perf_counter()
        write_run(path, size)
        print(f"{size.records:,} records of {size.ranks} ranks written in {time.perf_counter() - started:.0f} s")
        wall, cpu, peak = _in_new_process(f"print(json.dumps(measure_compaction(Path({str(path)!r}))))")
        rate = size.records / wall / 1e6
        print(f"compacted in {wall:.1f} s, {cpu:.1f} s of CPU: {rate:.2f} M records/s, peak {peak:.0f} MB")
        dropped = _drop_caches()
        print(f"{'picture':<40}{'cells':>12}{'cold ms':>9}{'warm ms':>9}{'peak MB':>9}")
        for name in pictures(open_index(path, refresh=False)):
            _drop_caches()
            code = f"a, peak = ask(Path({str(path)!r}), {name!r}); "
            code += "print(json.dumps([*a.shape, a.cold_ms, a.warm_ms, peak]))"
            height, width, cold, warm, memory = _in_new_process(code)
            print(f"{name:<40}{f'{height:.0f} x {width:.0f}':>12}{cold:>9.0f}{warm:>9.0f}{memory:>9.0f}")
        print("cold: a new process" + (", page cache emptied" if dropped else "; the page cache could not be emptied"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
