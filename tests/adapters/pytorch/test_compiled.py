"""Compiled and fused modules: recorded at their boundary, never taken apart, and what is missed is said."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import msprobe

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


class Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


@pytest.fixture
def compilations():
    """Counts compilations; the graphs themselves run eagerly, so that no compiler is needed."""
    torch._dynamo.reset()
    counts = []

    def backend(graph, inputs):
        counts.append(graph)
        return graph.forward

    yield backend, counts
    torch._dynamo.reset()


def _steps(model, path, count=4, **options):
    with msprobe.record(model, path, **options) as probe:
        for _ in range(count):
            model(torch.ones(2, 4)).sum().backward()
            probe.step()


@pytest.mark.parametrize("way", ["wrapped", "in place"])
@pytest.mark.parametrize("before", [True, False])
def test_a_compiled_module_is_recorded_at_its_boundary(tmp_path, read, compilations, way, before):
    backend, counts = compilations
    body: Any = Body()
    if way == "wrapped":
        body = torch.compile(body, backend=backend)
    else:
        body.compile(backend=backend)
    model = nn.Sequential(nn.Linear(4, 4), body, nn.Linear(4, 4))
    if before:
        model(torch.ones(2, 4))
    _steps(model, tmp_path / "run", steps="1,3")
    run = read(tmp_path / "run")
    assert len(counts) == 1
    places = set(run.places(1))
    assert {"0|forward|output|0|0", "1|forward|input|0|0", "1|forward|output|0|0", "2|forward|output|0|0"} <= places
    assert "1|backward|input|0|0" in places
    assert {"1.first|forward|parameter|weight|0", "1.first|backward|gradient|weight|0"} <= places
    assert not any(place.startswith(("1.first|forward|output", "1.first|forward|input")) for place in places)
    assert ("gap", "1") in {(event.kind, event.node) for event in run.events}
    assert run.nodes["1"].class_name == "Body"
    assert run.kinds("gap") == []


def test_a_compiled_root_is_recorded_at_its_boundary(tmp_path, read, compilations):
    backend, counts = compilations
    _steps(torch.compile(Body(), backend=backend), tmp_path / "run")
    run = read(tmp_path / "run")
    assert len(counts) == 1
    assert {"|forward|input|0|0", "|forward|output|0|0", "first|forward|parameter|weight|0"} <= set(run.places())


def test_a_compiled_function_is_not_compiled_again_for_recording(tmp_path, read, compilations):
    backend, counts = compilations

    class Calls(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Body()
            self.run = torch.compile(self._run, backend=backend)

        def _run(self, x):
            return self.inner(x) * 2

        def forward(self, x):
            return self.run(x)

    model = Calls()
    _steps(model, tmp_path / "run", count=6, steps="1,3,5", trace=False)
    assert len(counts) == 1
    run = read(tmp_path / "run")
    assert not any(place.startswith("inner|forward|output") for place in run.places(3))
    gaps = [event for event in run.events if event.kind == "gap"]
    assert gaps
    assert {event.node for event in gaps} >= {"inner"}


def test_hooks_that_switch_off_a_fused_path_are_counted_as_altering(tmp_path, read):
    layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
    model = nn.Sequential(layer)
    x = torch.ones(1, 3, 4)
    with msprobe.record(model, tmp_path / "train", trace=False) as probe:
        model(x)
        probe.step()
    assert read(tmp_path / "train").kinds() == []
    model.eval()
    with torch.inference_mode(), msprobe.record(model, tmp_path / "run", trace=False) as probe:
        model(x)
        probe.step()
    assert ("altered", "0") in {(event.kind, event.node) for event in read(tmp_path / "run").events}


def test_no_dispatch_mode_is_there_when_a_function_is_compiled(tmp_path, compilations):
    backend, counts = compilations
    depths = []

    def watching(graph, inputs):
        depths.append(torch.utils._python_dispatch._len_torch_dispatch_stack())
        return backend(graph, inputs)

    class Calls(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Body()

        @torch.compile(backend=watching)
        def forward(self, x):
            return self.inner(x)

    _steps(nn.Sequential(Calls()), tmp_path / "run", trace=True)
    assert depths == [0]
    assert len(counts) == 1


@pytest.mark.parametrize("num_heads", [1, 2])
def test_only_a_layer_that_would_have_fused_is_counted(tmp_path, read, num_heads):
    model = nn.TransformerEncoderLayer(4, num_heads, 8, batch_first=True).eval()
    with torch.no_grad(), msprobe.record(model, tmp_path / "run", trace=False) as probe:
        model(torch.ones(1, 3, 4))
        probe.step()
    assert read(tmp_path / "run").kinds() == (["altered"] if num_heads == 2 else [])


def test_a_script_is_a_gap_between_its_neighbours(tmp_path, read):
    model = nn.Sequential(nn.Linear(4, 4), torch.jit.script(nn.Sequential(nn.Linear(4, 4))), nn.Linear(4, 4))
    _steps(model, tmp_path / "run", count=1)
    run = read(tmp_path / "run")
    places = set(run.places())
    assert {"0|forward|output|0|0", "2|forward|input|0|0", "1.0|forward|parameter|weight|0"} <= places
    assert "1.0|backward|gradient|weight|0" in places
    assert [(event.kind, event.node) for event in run.events] == [("gap", "1")]
