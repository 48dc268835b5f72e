"""What a run says of its circumstances, and seeding."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest
import torch
from torch import nn

import msprobe
from msprobe.adapters.pytorch.context import random_states, rank_info


@pytest.fixture
def restored_modes(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    yield
    torch.use_deterministic_algorithms(False)


class Configured(nn.Linear):
    class Config:
        def to_dict(self):
            return {"hidden": 3, "dtype": torch.float32, "nested": {"rope": (1, 2.5)}}

    config = Config()


def test_the_header_tells_versions_options_models_and_the_users_words(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    context = {"data": "wiki", "rates": (1, 2)}
    with msprobe.record(Configured(3, 1), tmp_path / "run", what="statistics", context=context) as probe:
        probe.step()
    header = msprobe.open_run(tmp_path / "run").header
    assert header.framework == "pytorch"
    assert header.versions["torch"] == torch.__version__
    assert header.config["what"] == ["statistics"]
    assert header.context["environment"]["OMP_NUM_THREADS"] == "3"
    assert header.context["models"][""] == {"hidden": 3, "dtype": "torch.float32", "nested": {"rope": [1, 2.5]}}
    assert header.context["user"] == {"data": "wiki", "rates": [1, 2]}
    assert not header.perturbed
    json.dumps(header.context)


def test_the_rank_comes_from_the_launcher_before_torch_knows_it(monkeypatch):
    assert (rank_info().rank, rank_info().world_size) == (0, 1)
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert (rank_info().rank, rank_info().world_size) == (3, 8)


def test_random_states_tell_equal_from_different_ones():
    msprobe.seed_all(5, deterministic=False)
    before, again = dict(random_states()), dict(random_states())
    torch.rand(1)
    after = dict(random_states())
    assert before == again
    assert before["torch.cpu"] != after["torch.cpu"]
    assert before["python"] == after["python"]


@pytest.mark.usefixtures("restored_modes")
def test_seed_all_repeats_every_generator():
    draws = []
    for _ in range(2):
        msprobe.seed_all(7)
        draws.append((torch.rand(1).item(), float(np.random.rand()), random.random()))
    assert draws[0] == draws[1]
    assert torch.are_deterministic_algorithms_enabled()
    assert torch.is_deterministic_algorithms_warn_only_enabled()
