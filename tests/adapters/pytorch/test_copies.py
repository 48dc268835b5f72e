"""A model can be copied and pickled while it is recorded, and the copies record nothing."""

from __future__ import annotations

import copy
import io
import pickle
import subprocess
import sys

import pytest
import torch
from torch import nn

import msprobe
from msprobe.core.run.reader import open_run


def records(path, *, use):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    with msprobe.record(model, path) as probe:
        for _ in range(2):
            model(torch.ones(2, 4)).sum().backward()
            use(model)
            probe.step()
    return open_run(path).rank(0).num_records


def run_deep_copy(model):
    twin = copy.deepcopy(model)
    twin(torch.ones(2, 4)).sum().backward()


def run_shallow_copy(model):
    copy.copy(model[0])(torch.ones(2, 4))


def run_pickled(model):
    pickle.loads(pickle.dumps(model))(torch.ones(2, 4))


def run_saved(model):
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    torch.load(buffer, weights_only=False)(torch.ones(2, 4)).sum().backward()


@pytest.mark.parametrize("use", [run_deep_copy, run_shallow_copy, run_pickled, run_saved])
def test_copies_work_and_record_nothing(tmp_path, use):
    assert records(tmp_path / "copied", use=use) == records(tmp_path / "plain", use=lambda model: None)


def test_a_model_pickled_while_recorded_loads_without_msprobe(tmp_path):
    def keep(model):
        torch.save(model, tmp_path / "model.pt")

    records(tmp_path / "run", use=keep)
    program = (
        "import sys, torch; sys.modules['msprobe'] = None\n"
        "model = torch.load(sys.argv[1], weights_only=False)\n"
        "print(tuple(model(torch.ones(2, 4)).shape))"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "model.pt")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "(2, 1)", done.stderr
