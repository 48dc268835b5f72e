"""Recordings without a framework."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from msprobe.core import kernels
from msprobe.core.options import RecordOptions
from msprobe.core.recorder import Recorder
from msprobe.core.run.batch import Batch, RankInfo, RunHeader, SiteRow
from msprobe.core.run.writer import RunWriter
from msprobe.core.sites import Direction, Form, Node, NodeKind, Role


def _load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


NumpyReducer = _load(Path(__file__).parent / "numpy_reducer.py").NumpyReducer


@pytest.fixture(params=["C", "NumPy"], scope="module")
def each_path(request):
    """Runs the tests of a module with the C kernels, and with NumPy in their place."""
    if request.param == "NumPy":
        with kernels.without():
            yield
    elif kernels.available():
        yield
    else:
        pytest.skip(f"kernels: {kernels.status()}")


@pytest.fixture
def start_writer():
    """Gives a function that starts writers, which are closed in the end."""
    writers = []

    def start(path, *, rank=0, what=("statistics", "sketch"), **settings):
        writer = RunWriter(path, rank=RankInfo(rank, 2), header=RunHeader("numpy"), what=frozenset(what), **settings)
        writers.append(writer)
        return writer

    yield start
    for writer in writers:
        writer.close()


@pytest.fixture
def start_recorder(start_writer):
    """Gives a function that starts recorders; their writers are closed in the end."""

    def start(path, *, rank=0, **options):
        chosen = RecordOptions.create(**options)
        what = chosen.what.union(*(what for _, what in chosen.what_for))
        return Recorder(
            start_writer(path, rank=rank, what=what, queue_bytes=chosen.queue_bytes), NumpyReducer(), chosen
        )

    return start


@pytest.fixture
def new_batch():
    """Gives a function that makes a batch of one site, with the catalogue on request."""

    def make(step=0, *, rows=3, catalogue=True, **parts):
        records = {
            "seq": np.arange(rows) + 1000 * step,
            "step": np.full(rows, step),
            "micro_step": np.zeros(rows),
            "site": np.zeros(rows),
            "form": np.zeros(rows),
            "status": np.zeros(rows),
            "has": np.full(rows, 1),
            "tensor": np.full(rows, -1),
            "norm": np.arange(rows) + step / 1000,
        }
        batch = Batch(step, records=records, **parts)
        if catalogue:
            batch.nodes = [Node("", NodeKind.MODULE, "Net", None)]
            batch.sites = [SiteRow(0, Direction.FORWARD, Role.OUTPUT, "0", 0)]
            batch.forms = [Form("fp32", (2, 3))]
        return batch

    return make
