"""A program that is meant to be killed: records step after step and tells which steps it has completed.

python recording_program.py RUN SEED STEPS [RANK]
"""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from numpy_reducer import NumpyReducer  # type: ignore[import-not-found]  # beside this file, not on mypy's path

from msprobe.core.graph import EdgeSource
from msprobe.core.options import RecordOptions
from msprobe.core.recorder import Recorder
from msprobe.core.run.batch import RankInfo, RunHeader
from msprobe.core.run.writer import RunWriter
from msprobe.core.sites import Direction, NodeKind, Role


def record(path, seed, steps, rank=0):
    """Records steps of a net that grows by a module a step."""
    options = RecordOptions.create(what="statistics,sketch,tensors", stacks=True)
    writer = RunWriter(Path(path), rank=RankInfo(rank, 2), header=RunHeader("numpy"), what=options.what)
    recorder = Recorder(writer, NumpyReducer(), options)
    for step in range(steps):
        one_step(recorder, np.random.default_rng([seed, step]), step)
        recorder.end_step()
        yield step
    recorder.close()


def one_step(recorder, generator, step):
    """Records a step; the later the step, the more modules there are."""
    recorder.fact(None, "rng", "numpy", str(generator.bit_generator.state))
    before = None
    for layer in range(step % 40 + 1):
        node = recorder.node(f"layers.{layer}", NodeKind.MODULE, "Layer", "")
        site = recorder.site(node, Direction.FORWARD, Role.OUTPUT, "0", 0, (f"net.py:{layer}",))
        values = generator.standard_normal((3, layer + 1))
        values[0, 0] = (np.nan, np.inf, -np.inf, -0.0)[layer % 4]
        recorder.observe(site, values)
        if before is not None:
            recorder.edge(before, site, EdgeSource.TRACED)
        before = site


if __name__ == "__main__":
    run, *numbers = sys.argv[1:]
    for completed in record(run, *map(int, numbers)):
        sys.stdout.write(f"{completed}\n")
        sys.stdout.flush()
