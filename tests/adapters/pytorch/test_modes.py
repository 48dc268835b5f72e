"""Modes come and go anywhere without leaving torch's books in disorder."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

import msprobe
from msprobe.adapters.pytorch.modes import install, settle, uninstall


class Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_a_mode_taken_off_inside_inference_mode_leaves_torch_usable():
    mode = Counting()
    install(mode)
    with torch.inference_mode():
        assert uninstall(mode)
        torch.ones(2) + 1
        assert mode.count == 0
    assert torch.ones(2).sum() == 2
    settle()
    assert _get_current_dispatch_mode_stack() == []
    assert torch.ones(2).sum() == 2


def test_a_mode_put_back_inside_inference_mode_sees_operators_again():
    mode = Counting()
    install(mode)
    with torch.inference_mode():
        uninstall(mode)
        install(mode)
        torch.ones(2)
    assert mode.count == 1
    uninstall(mode)
    assert _get_current_dispatch_mode_stack() == []
    assert torch.ones(2).sum() == 2


def test_a_mode_of_one_inference_mode_comes_and_goes_without_a_trace():
    mode = Counting()
    with torch.inference_mode():
        install(mode)
        uninstall(mode)
        assert _get_current_dispatch_mode_stack() == []
    assert torch.ones(2).sum() == 2


@pytest.mark.parametrize("level", ["module", "op", "mix"])
def test_steps_inside_one_inference_mode_are_recorded_and_torch_works_afterwards(tmp_path, level):
    model = torch.nn.Linear(3, 3)
    with msprobe.record(model, tmp_path / "run", level=level) as probe, torch.inference_mode():
        for _ in range(3):
            model(torch.ones(1, 3))
            probe.step()
    assert torch.nn.Linear(2, 2)(torch.ones(1, 2)).shape == (1, 2)
    assert _get_current_dispatch_mode_stack() == []
    run = msprobe.open_run(tmp_path / "run")
    assert run.steps == (0, 1, 2)
