"""Whole tensors, their parts, and what merging makes of them."""

import numpy as np
import pytest

from msprobe.core.merging.run import merge_run
from msprobe.core.run.reader import open_run


@pytest.fixture
def floats():
    """Gives a function that draws float32 tensors, always the same ones."""
    generator = np.random.default_rng(0)
    return lambda *shape: np.asarray(generator.standard_normal(shape), np.float32)


@pytest.fixture
def merged():
    """Gives a function that opens a run as one whole rank."""
    return lambda path, parallel=None: merge_run(open_run(path), parallel).rank(0)
