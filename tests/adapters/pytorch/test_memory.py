"""A recording keeps nothing alive beyond its time, and its own memory does not grow."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import torch
from torch import nn

import msprobe

X = torch.ones(2, 3)


def _model():
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))


def test_recording_keeps_no_tensor_and_makes_no_cycle(tmp_path):
    model = _model()
    gc.collect()
    gc.disable()
    try:
        with msprobe.record(model, tmp_path / "run", trace=False) as probe:
            out = model(X)
            reference = weakref.ref(out)
            out.sum().backward()
            del out
            assert reference() is None
            probe.step()
    finally:
        gc.enable()


def test_activations_are_freed_as_early_as_without_recording(tmp_path):
    alive = []

    class Watch(nn.Module):
        def forward(self, x):
            y = x + 1
            alive.append(weakref.ref(y))
            return y

    class Count(nn.Module):
        def forward(self, x):
            self.alive = sum(reference() is not None for reference in alive)
            return x

    model = nn.Sequential(Watch(), Watch(), Watch(), Count())
    with torch.no_grad(), msprobe.record(model, tmp_path / "run", trace=False) as probe:
        model(X)
        probe.step()
    assert model[3].alive == 1


def test_memory_does_not_grow_over_200_steps(tmp_path):
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def count():
        gc.collect()
        return len(gc.get_objects())

    with msprobe.record(model, tmp_path / "run", optimizer=optimizer):
        for step in range(200):
            optimizer.zero_grad()
            model(X).sum().backward()
            optimizer.step()
            if step == 50:
                before = count()
        after = count()
    assert after - before < 150


def test_inference_without_steps_does_not_gather_memory(tmp_path):
    model = _model()
    sizes = []
    probe: Any = msprobe.record(model, tmp_path / "run", trace=False)
    with torch.no_grad(), probe:
        for _ in range(6):
            for _ in range(20):
                model(X)
            probe.recorder.flush()
            gc.collect()
            sizes.append(len(gc.get_objects()))
    assert sizes[-1] - sizes[1] < 100
