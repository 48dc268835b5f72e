"""Writes a pair of runs of a wide mixture of experts that never ran, with the real writer: some 100,000 nodes a side.

Both sides differ by rounding everywhere, and in layer 2 by a fault planted in one expert, which all behind it inherit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.synthetic_run import FAULT, ROUNDING
from msprobe.core.graph import EdgeSource
from msprobe.core.records import HAS, Status
from msprobe.core.run.batch import Batch, RankInfo, RunHeader, SiteRow
from msprobe.core.run.writer import RunWriter
from msprobe.core.sites import Direction, Form, Node, NodeKind, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

FORM = Form("fp32", (64, 256))
FAULTY_LAYER, FAULTY_EXPERT = 2, 17
FAULT_NODE = f"model.layers.{FAULTY_LAYER}.mlp.experts.{FAULTY_EXPERT}.down_proj"

_ATTENTION = ("q_proj", "k_proj", "v_proj", "o_proj")
_EXPERT = ("gate_proj", "up_proj", "down_proj")


@dataclass(frozen=True, slots=True)
class Width:
    """How large the model is."""

    layers: int = 200
    experts: int = 124


def nodes_of(width: Width) -> list[Node]:
    """Gives the modules in order of execution, containers before what they hold."""
    return [Node("", NodeKind.MODULE, "Model", None), *(_node(path, name) for path, name in _paths(width))]


def _paths(width: Width) -> Iterator[tuple[str, str]]:
    yield "model", "Decoder"
    for layer in range(width.layers):
        block = f"model.layers.{layer}"
        yield block, "DecoderLayer"
        yield f"{block}.input_layernorm", "RMSNorm"
        yield f"{block}.self_attn", "Attention"
        yield from ((f"{block}.self_attn.{name}", "Linear") for name in _ATTENTION)
        yield f"{block}.post_attention_layernorm", "RMSNorm"
        yield f"{block}.mlp", "SparseMoe"
        yield f"{block}.mlp.router", "Router"
        for expert in range(width.experts):
            yield f"{block}.mlp.experts.{expert}", "Expert"
            yield from ((f"{block}.mlp.experts.{expert}.{name}", "Linear") for name in _EXPERT)


def _node(path: str, class_name: str) -> Node:
    parent = path.rpartition(".")[0]
    return Node(path, NodeKind.MODULE, class_name, parent.removesuffix(".layers").removesuffix(".experts"))


def write_wide_run(path: Path, width: Width, *, side: str) -> Path:
    """Writes one side: an input and an output of each module, one after the other along the flow of data."""
    nodes = nodes_of(width)
    sites = [
        SiteRow(number, Direction.FORWARD, role, "0", 0)
        for number in range(1, len(nodes))
        for role in (Role.INPUT, Role.OUTPUT)
    ]
    batch = Batch(step=0, nodes=nodes, sites=sites, forms=[FORM])
    batch.edges = [(site, site + 1, EdgeSource.TRACED) for site in range(len(sites) - 1)]
    fault = 2 * (next(i for i, node in enumerate(nodes) if node.path == FAULT_NODE) - 1) + 1
    batch.records = _records(len(sites), fault if side == "candidate" else -1)
    header = RunHeader(framework="synthetic", versions={"synthetic": "1"}, arguments=("synthetic", side))
    writer = RunWriter(path, rank=RankInfo(), header=header, what=frozenset({"statistics"}))
    writer.submit(batch)
    writer.close()
    assert writer.failure is None, writer.failure
    return path


def _records(count: int, fault: int) -> dict[str, NDArray[np.generic]]:
    scale = np.random.default_rng(0).uniform(0.999, 1.001, count)
    if fault >= 0:
        error = np.where(np.arange(count) >= fault, FAULT, ROUNDING)
        scale = scale * (1 + error * np.random.default_rng(1).choice([-1.0, 1.0], count))
    elements = float(np.prod(FORM.shape))
    zeros = np.zeros(count, np.int64)
    return {
        "seq": np.arange(count, dtype=np.uint64),
        "step": zeros,
        "micro_step": zeros.astype(np.int32),
        "site": np.arange(count, dtype=np.uint32),
        "form": zeros.astype(np.uint32),
        "status": np.full(count, Status.MEASURED, np.uint8),
        "has": np.full(count, HAS["statistics"], np.uint8),
        "tensor": np.full(count, -1, np.int64),
        "min": -4 * scale,
        "max": 4 * scale,
        "mean": 0.01 * scale,
        "mean_abs": 0.8 * scale,
        "m2": elements * scale**2 * (1 - 1e-4),
        "norm": scale * elements**0.5,
        **dict.fromkeys(("nan", "pos_inf", "neg_inf", "zero"), zeros),
    }
