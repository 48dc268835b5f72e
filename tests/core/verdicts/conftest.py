"""Small runs written through the real recorder: a residual network in NumPy whose every number is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from msprobe.core.checksums import checksums_of
from msprobe.core.graph import EdgeSource
from msprobe.core.options import RecordOptions
from msprobe.core.recorder import Recorder
from msprobe.core.run.batch import RankInfo, RunHeader
from msprobe.core.run.writer import RunWriter
from msprobe.core.sites import Direction, Form, NodeKind, Role
from msprobe.core.sketches import sketch
from msprobe.core.statistics import columns, measure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
from dataclasses import dataclass

NAMES = {"float32": "fp32", "float64": "fp64", "int64": "int64", "bool": "bool"}
LAYERS, WIDTH, ROWS = 3, 32, 16


@dataclass(frozen=True)
class Copy:
    """An array's bits."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    data: Any


class ArrayReducer:
    """Measures arrays at once; a device would do so later."""

    def __init__(self) -> None:
        self._slots: list[tuple[Any, Any, Any]] = []

    def describe(self, tensor: Any) -> Form:
        return Form(NAMES[tensor.dtype.name], tuple(tensor.shape))

    def measure(self, tensor: Any, what: frozenset[str]) -> int:
        self._slots.append((measure(tensor), sketch(tensor), checksums_of(tensor)))
        return len(self._slots) - 1

    def collect(self) -> dict[str, Any]:
        slots, self._slots = self._slots, []
        if not slots:
            return {}
        found = dict(columns([slot[0] for slot in slots]))
        found["sketch"] = np.stack([slot[1] for slot in slots])
        found["checksum"] = np.array([slot[2][0] for slot in slots], dtype=np.uint64)
        found["content_sum"] = np.array([slot[2][1] for slot in slots], dtype=np.uint64)
        return found

    def snapshot(self, tensor: Any) -> Copy:
        data = np.ascontiguousarray(tensor).reshape(-1).view(np.uint8).copy()
        return Copy(NAMES[tensor.dtype.name], tensor.shape, tensor.nbytes, data)

    def rows(self, tensor: Any) -> Any:
        raise AssertionError("no test here asks for row statistics")


class Network:
    """h <- h + W2 relu(W1 norm(h)), layer by layer, trained by gradient descent; ``edit`` changes values by name."""

    def __init__(self, recorder: Recorder, edit: Callable[[str, int, Any], Any]) -> None:
        self.recorder, self.edit, self.step = recorder, edit, 0
        self.gradients: dict[str, Any] = {}
        generator = np.random.default_rng(0)
        self.weights = {
            f"layers.{i}.mlp.{name}": (generator.standard_normal((WIDTH, WIDTH)) / np.sqrt(WIDTH)).astype(np.float32)
            for i in range(LAYERS)
            for name in ("up", "down")
        }

    def node(self, path: str, class_name: str) -> int:
        parent = None if path == "" else path.rpartition(".")[0]
        return self.recorder.node(path, NodeKind.MODULE, class_name, parent)

    def see(
        self, place: tuple[str, str, Direction, Role, str], value: Any, sources: Sequence[int | None]
    ) -> tuple[Any, int]:
        path, class_name, direction, role, argument = place
        value = self.edit(f"{direction.value} {role.value} {path}", self.step, value)
        site = self.recorder.site(self.node(path, class_name), direction, role, argument, 0)
        self.recorder.observe(site, value)
        for source in sources:
            if source is not None:
                self.recorder.edge(source, site, EdgeSource.TRACED)
        return value, site

    def train(self, steps: int) -> None:
        for self.step in range(steps):
            self._one_step()
            self.recorder.end_step()

    @np.errstate(invalid="ignore")
    def _one_step(self) -> None:
        generator = np.random.default_rng(100 + self.step)
        forward, backward, update = Direction.FORWARD, Direction.BACKWARD, Direction.UPDATE
        x = generator.standard_normal((ROWS, WIDTH)).astype(np.float32)
        h, h_site = self.see(("", "Net", forward, Role.INPUT, "0"), x, [])
        kept: list[tuple[Any, ...]] = []
        for i in range(LAYERS):
            kept.append(())
            h, h_site = self._layer(i, h, h_site, kept)
        _, out_site = self.see(("", "Net", forward, Role.OUTPUT, "0"), h, [h_site])
        gradient, g_site = self.see(("", "Net", backward, Role.INPUT, "0"), (h / h.size).astype(np.float32), [out_site])
        for i in reversed(range(LAYERS)):
            gradient, g_site = self._layer_backward(i, gradient, g_site, kept[i])
        for name, weight in self.weights.items():
            value, _ = self.see((name, "Linear", update, Role.GRADIENT, "weight"), self.gradients[name], [])
            self.weights[name] = (weight - np.float32(0.1) * value).astype(np.float32)

    def _layer(self, i: int, h: Any, h_site: int, kept: list[tuple[Any, ...]]) -> tuple[Any, int]:
        forward, path = Direction.FORWARD, f"layers.{i}"
        self.node("layers", "List"), self.node(path, "Layer"), self.node(f"{path}.mlp", "MLP")
        n_in, s = self.see((f"{path}.norm", "Norm", forward, Role.INPUT, "0"), h, [h_site])
        n, n_site = self.see((f"{path}.norm", "Norm", forward, Role.OUTPUT, "0"), _norm(n_in), [s])
        u_in, s = self.see((f"{path}.mlp.up", "Linear", forward, Role.INPUT, "0"), n, [n_site])
        w1, w_site = self.see(
            (f"{path}.mlp.up", "Linear", forward, Role.PARAMETER, "weight"), self.weights[f"{path}.mlp.up"], []
        )
        u, u_site = self.see((f"{path}.mlp.up", "Linear", forward, Role.OUTPUT, "0"), u_in @ w1.T, [s, w_site])
        a, s = self.see((f"{path}.mlp.down", "Linear", forward, Role.INPUT, "0"), np.maximum(u, 0), [u_site])
        w2, w2_site = self.see(
            (f"{path}.mlp.down", "Linear", forward, Role.PARAMETER, "weight"), self.weights[f"{path}.mlp.down"], []
        )
        d, d_site = self.see((f"{path}.mlp.down", "Linear", forward, Role.OUTPUT, "0"), a @ w2.T, [s, w2_site])
        m, m_site = self.see((f"{path}.mlp", "MLP", forward, Role.OUTPUT, "0"), d, [d_site])
        out, out_site = self.see((path, "Layer", forward, Role.OUTPUT, "0"), h + m, [h_site, m_site])
        kept[i] = (n, u, a, w1, w2)
        return out, out_site

    def _layer_backward(self, i: int, gradient: Any, g_site: int, kept: tuple[Any, ...]) -> tuple[Any, int]:
        backward, path = Direction.BACKWARD, f"layers.{i}"
        n, u, a, w1, w2 = kept
        g, s = self.see((f"{path}.mlp.down", "Linear", backward, Role.INPUT, "0"), gradient, [g_site])
        dw2, _ = self.see((f"{path}.mlp.down", "Linear", backward, Role.GRADIENT, "weight"), g.T @ a, [s])
        ga, ga_site = self.see((f"{path}.mlp.down", "Linear", backward, Role.OUTPUT, "0"), g @ w2, [s])
        gu, s = self.see((f"{path}.mlp.up", "Linear", backward, Role.INPUT, "0"), ga * (u > 0), [ga_site])
        dw1, _ = self.see((f"{path}.mlp.up", "Linear", backward, Role.GRADIENT, "weight"), gu.T @ n, [s])
        gn, gn_site = self.see((f"{path}.mlp.up", "Linear", backward, Role.OUTPUT, "0"), gu @ w1, [s])
        self.gradients[f"{path}.mlp.up"], self.gradients[f"{path}.mlp.down"] = dw1, dw2
        back, back_site = self.see((f"{path}", "Layer", backward, Role.OUTPUT, "0"), gradient + gn, [g_site, gn_site])
        return back, back_site


def _norm(x: Any) -> Any:
    return (x / np.sqrt(np.mean(np.square(x), axis=-1, keepdims=True) + np.float32(1e-6))).astype(np.float32)


@pytest.fixture
def record(tmp_path: Path) -> Callable[..., Path]:
    """Gives a function that records a run: ``edit(place, step, value)`` may change any value that is seen."""

    def run(
        name: str,
        edit: Callable[[str, int, Any], Any] | None = None,
        *,
        steps: int = 2,
        what: Sequence[str] = ("statistics", "sketch"),
        rank: int = 0,
    ) -> Path:
        path = tmp_path / name
        kept = frozenset(what)
        writer = RunWriter(path, rank=RankInfo(rank=rank), header=RunHeader(framework="numpy"), what=kept)
        recorder = Recorder(writer, ArrayReducer(), RecordOptions(what=kept))
        Network(recorder, edit or (lambda place, step, value: value)).train(steps)
        recorder.close()
        return path

    return run
