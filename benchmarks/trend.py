"""Measures the index of trends at full size: ``python -m benchmarks.trend``.

A simulated run of many ranks is written through the real writer, compacted, and asked for every kind of slice. Cold is
a new process (its imports left out) after the page cache of the index was dropped, where the system lets us.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msprobe.core.records import Status
from msprobe.core.run.batch import Batch, RankInfo, RunHeader, SiteRow
from msprobe.core.run.writer import RunWriter
from msprobe.core.sites import Direction, Form, Node, NodeKind, Role

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


if __name__ == "__main__":
    path = Path(sys.argv[1])
    size = Size(*map(int, sys.argv[2:5]))
    t = time.time()
    write_run(path, size)
    print("wrote", time.time() - t)
