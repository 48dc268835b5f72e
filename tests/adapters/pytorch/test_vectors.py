"""Row and column sums of parameters: host and device agree; the first step saves them, unless they are left out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import msprobe
from msprobe.adapters.pytorch.dtypes import NAMES
from msprobe.adapters.pytorch.host_arrays import bits
from msprobe.adapters.pytorch.reductions import TorchReducer
from msprobe.core.content_vectors import content_vectors
from msprobe.core.records import VECTORS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.float8_e4m3fn])
@pytest.mark.parametrize("turned", [False, True])
def test_host_and_device_agree_with_the_definition(dtype, turned):
    values = (100 * torch.randn(37, 20, generator=torch.Generator().manual_seed(0))).to(dtype)
    values = values.T if turned else values
    expected = content_vectors(bits(values.contiguous()), NAMES[dtype])
    for devices in (frozenset({"cpu"}), frozenset()):
        reducer = TorchReducer(devices)
        snapshot = reducer.vectors(values)
        reducer.collect()
        for vector, found in zip(expected, (snapshot.columns[column] for column in VECTORS), strict=True):
            assert np.array_equal(vector, found)


@pytest.mark.parametrize("vectors", [True, False])
def test_parameters_of_the_first_step_have_them_unless_left_out(tmp_path, vectors):
    model = torch.nn.Linear(3, 5)
    with msprobe.record(model, tmp_path / "run", vectors=vectors) as probe:
        for _ in range(2):
            model(torch.randn(2, 3)).sum().backward()
            with torch.no_grad():
                model.weight += 1
            probe.step()
    run = msprobe.open_run(tmp_path / "run").rank(0)
    weights = [
        row
        for row, site in enumerate(run.records["site"].tolist())
        if run.sites.site(site).role.value == "parameter" and run.sites.argument[site] == "weight"
    ]
    held = [run.content_vectors(row) for row in weights]
    assert [found is not None for found in held] == [vectors, False]
    if held[0] is not None:
        assert [len(vector) for vector in held[0]] == [5, 3]
        assert int(held[0][0].sum(dtype=np.uint64)) == int(run.records["content_sum"][weights[0]])
