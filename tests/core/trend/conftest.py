"""Small runs for trends, written through the real writer."""

from collections.abc import Callable

import numpy as np
import pytest

from msprobe.core.run.batch import Batch, Fact, RankInfo, RunHeader, SiteRow
from msprobe.core.run.writer import RunWriter
from msprobe.core.sites import Direction, Form, Node, NodeKind, Role

PLACES = (
    (Direction.FORWARD, Role.INPUT, "0"),
    (Direction.FORWARD, Role.OUTPUT, "0"),
    (Direction.BACKWARD, Role.GRADIENT, "weight"),
)
COUNTS = ("nan", "pos_inf", "neg_inf", "zero")


def level(rank, step, site):
    """The norm that a cell has."""
    return 1 + rank + 100 * step + 10_000 * site


class Simulation:
    """Writes runs of modules ``layers.N`` with three sites each, whose norms tell where they stand."""

    def __init__(self, path, *, ranks=3, layers=2, mesh=None, reverse=False, elements=16):
        self.path, self.layers, self.ranks = path, layers, ranks
        self.elements = elements
        self._writers = {}
        self._mesh: Callable[[int], dict[str, tuple[int, int]]] = mesh or (lambda rank: {})
        self._reverse = reverse
        self.number_of_sites = 3 * layers

    def start(self, rank, **header):
        info = RankInfo(rank, self.ranks, self._mesh(rank))
        self._writers[rank] = RunWriter(
            self.path, rank=info, header=RunHeader("simulated", **header), what=frozenset({"statistics"})
        )
        return self

    def write(self, rank, step, *, first=False, change=None, facts=(), micro_steps=1):
        """Writes a step; ``change`` maps a column to {position of site: value}."""
        batch = Batch(step)
        order = np.arange(self.number_of_sites)
        if self._reverse and rank % 2:
            order = order[::-1]
        if first:
            batch.nodes = [Node(f"layers.{i}", NodeKind.MODULE, "Linear", None) for i in range(self.layers)]
            batch.sites = [SiteRow(int(i) // 3, *PLACES[int(i) % 3], 0) for i in order]
            batch.forms = [Form("fp32", (self.elements,))]
        local = np.empty(len(order), np.int64)
        local[order] = np.arange(len(order))
        sites = np.tile(local, micro_steps)
        place = np.tile(np.arange(len(order)), micro_steps)
        count = len(sites)
        norm = level(rank, step, place).astype(float)
        records = {
            "seq": np.arange(count) + 1000 * step, "step": np.full(count, step), "site": sites,
            "micro_step": np.repeat(np.arange(micro_steps), len(order)), "form": np.zeros(count),
            "status": np.zeros(count),
            "has": np.ones(count), "tensor": np.full(count, -1), "norm": norm, "min": -norm, "max": norm.copy(),
            "mean": norm / 10, "mean_abs": norm / 5, "m2": norm**2,
        }  # fmt: skip
        records |= {name: np.zeros(count) for name in COUNTS}
        for name, changes in (change or {}).items():
            for at, value in changes.items():
                records[name][at] = value
        batch.records = records
        batch.facts = list(facts)
        self._writers[rank].submit(batch)
        return self

    def flush(self):
        for writer in self._writers.values():
            assert writer.flush(30)
        return self

    def close(self):
        for writer in self._writers.values():
            writer.close()
            assert writer.failure is None
        return self


@pytest.fixture
def simulate(tmp_path):
    """Gives a function that writes a whole run: ``change(rank, step)`` gives the changes of a step."""

    def make(name="run", *, ranks=3, steps=range(4), change=None, facts=None, micro_steps=1, **settings):
        simulation = Simulation(tmp_path / name, ranks=ranks, **settings)
        for rank in range(ranks):
            simulation.start(rank)
            for i, step in enumerate(steps):
                changed = change(rank, step) if change else None
                given = [Fact(step, 0, -1, "scalar", k, v) for k, v in facts(rank, step).items()] if facts else ()
                simulation.write(rank, step, first=not i, change=changed, facts=given, micro_steps=micro_steps)
        return simulation.close().path

    return make


@pytest.fixture
def start_simulation(tmp_path):
    """Gives a function that starts a simulation which the test writes itself."""
    started = []

    def start(name="run", **settings):
        started.append(Simulation(tmp_path / name, **settings))
        return started[-1]

    yield start
    for simulation in started:
        simulation.close()
