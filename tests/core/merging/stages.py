"""Six small layers in a row, computed as a whole and cut into pipeline stages that number their layers from 0."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from msprobe.core.sites import Role

from .cutting import RankWriter, Seen
from .model import BACKWARD, FORWARD, site

LAYERS, WIDTH, BATCH = 6, 4, 2


def run_layers(wrong: int = -1, *, micro_steps: int = 1) -> list[dict[str, Any]]:
    """The tensors of each micro-step: x[i] enters layer i, g[i] is its gradient; layer ``wrong`` has a wrong weight."""
    draw = np.random.default_rng(7)
    weights = [draw.standard_normal((WIDTH, WIDTH)).astype(np.float32) for _ in range(LAYERS)]
    if wrong >= 0:
        weights[wrong] = weights[wrong] * np.float32(1.1)
    found = []
    for _ in range(micro_steps):
        x = [draw.standard_normal((BATCH, WIDTH)).astype(np.float32)]
        for weight in weights:
            x.append((x[-1] @ weight).astype(np.float32))
        g = [x[-1]]
        for weight in reversed(weights):
            g.insert(0, (g[0] @ weight.T).astype(np.float32))
        found.append({"x": x, "g": g, "w": weights})
    return found


def see(tensors: Sequence[dict[str, Any]], layers: range, names: Sequence[str], *, root: str = "") -> Iterator[Seen]:
    """What a stage that holds some of the layers sees, under its own names for them."""
    for micro, t in enumerate(tensors):
        x, g = t["x"], t["g"]
        yield Seen(root, x[layers.start], role=Role.INPUT, micro_step=micro, class_name="Model")
        for layer, name in zip(layers, names, strict=True):
            if micro == 0:
                yield Seen(name, t["w"][layer], role=Role.PARAMETER, argument="weight")
            yield Seen(name, x[layer], role=Role.INPUT, micro_step=micro)
            yield Seen(name, x[layer + 1], micro_step=micro)
        yield Seen(root, x[layers.stop], micro_step=micro, class_name="Model")
        yield Seen(root, g[layers.stop], BACKWARD, Role.INPUT, micro_step=micro, class_name="Model")
        for layer, name in reversed(list(zip(layers, names, strict=True))):
            yield Seen(name, g[layer + 1], BACKWARD, Role.INPUT, micro_step=micro)
            yield Seen(name, g[layer], BACKWARD, Role.OUTPUT, micro_step=micro)
        yield Seen(root, g[layers.start], BACKWARD, Role.OUTPUT, micro_step=micro, class_name="Model")


def edges(names: Sequence[str], *, root: str = "", last: bool = True) -> tuple[tuple[Any, Any], ...]:
    """The data flow inside a stage; in the ``last`` one the gradient comes from the output."""
    back_in, back_out = site(root, Role.INPUT, BACKWARD), site(root, Role.OUTPUT, BACKWARD)
    found = [
        (site(root, Role.INPUT), site(names[0], Role.INPUT)),
        (site(names[-1], Role.OUTPUT), site(root, Role.OUTPUT)),
        (back_in, site(names[-1], Role.INPUT, BACKWARD)),
        (site(names[0], Role.OUTPUT, BACKWARD), back_out),
    ]
    for name in names:
        weight = site(name, Role.PARAMETER, argument="weight")
        for direction in (FORWARD, BACKWARD):
            result = site(name, Role.OUTPUT, direction)
            found += [(site(name, Role.INPUT, direction), result), (weight, result)]
    for before, after in pairwise(names):
        found.append((site(before, Role.OUTPUT), site(after, Role.INPUT)))
        found.append((site(after, Role.OUTPUT, BACKWARD), site(before, Role.INPUT, BACKWARD)))
    return (*found, (site(root, Role.OUTPUT), back_in)) if last else tuple(found)


def whole_names() -> list[str]:
    return [f"layers.{layer}" for layer in range(LAYERS)]


def write_whole(path: Any, *, micro_steps: int = 1, wrong: int = -1, **settings: Any) -> Any:
    tensors = run_layers(wrong, micro_steps=micro_steps)
    RankWriter(path, edges=edges(whole_names()), **settings).write(see(tensors, range(LAYERS), whole_names()))
    return path


def write_stages(
    path: Any, sizes: Sequence[int], *, micro_steps: int = 1, wrong: int = -1, told: bool = True, **settings: Any
) -> Any:
    """One stage on each rank; each numbers its layers from 0 and records mesh and true paths if ``told``."""
    tensors, start = run_layers(wrong, micro_steps=micro_steps), 0
    for rank, size in enumerate(sizes):
        names = [f"layers.{i}" for i in range(size)]
        facts = tuple((name, "path", f"layers.{start + i}") for i, name in enumerate(names))
        writer = RankWriter(
            path, rank, len(sizes), {"pp": (rank, len(sizes))}, facts=facts, edges=edges(names), **settings
        )
        writer.write(see(tensors, range(start, start + size), names))
        start += size
    return path


def _by_chunk(seen: Sequence[Seen]) -> list[list[Seen]]:
    return [[s for s in seen if s.node.split(".")[0] == chunk] for chunk in ("chunk0", "chunk1")]


def write_virtual_stages(path: Any, *, wrong: int = -1, told: bool = True, **settings: Any) -> Any:
    """Two ranks with two chunks each: rank 0 runs layers 0 and 3, rank 1 layers 1, 2 and 4, 5."""
    (tensors,) = run_layers(wrong)
    chunks = {0: [range(1), range(3, 4)], 1: [range(1, 3), range(4, 6)]}
    for rank, ranges in chunks.items():
        seen: list[Seen] = []
        flow: list[Any] = []
        facts: list[tuple[str, str, Any]] = []
        for chunk, layers in enumerate(ranges):
            root = f"chunk{chunk}"
            names = [f"{root}.layers.{i}" for i in range(len(layers))]
            seen += list(see([tensors], layers, names, root=root))
            flow += edges(names, root=root, last=layers.stop == LAYERS)
            facts += [(root, "stage", 2 * chunk + rank), (root, "path", "")]
            facts += [(name, "path", f"layers.{layers.start + i}") for i, name in enumerate(names)]
        forward = [s for s in seen if s.direction is FORWARD]
        more: dict[str, Any] = {"mesh": {"pp": (rank, 2)}, "facts": tuple(facts)} if told else {}
        writer = RankWriter(path, rank, 2, edges=tuple(flow), **more, **settings)
        backward = [s for chunk in reversed(_by_chunk(seen)) for s in chunk if s.direction is not FORWARD]
        writer.write(forward + backward)
    return path
