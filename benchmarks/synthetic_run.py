"""Writes large runs of a transformer that never ran, with the real writer, so that comparing can be measured.

The numbers are consistent (a norm fits its mean and second moment, a sketch its norm), the two sides differ by rounding
everywhere, and from one planted fault on by more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.graph import EdgeSource
from msprobe.core.records import HAS, SKETCH_SIZE, Status
from msprobe.core.run.batch import Batch, Fact, RankInfo, RunHeader, SiteRow
from msprobe.core.run.writer import RunWriter
from msprobe.core.sites import Direction, Form, Node, NodeKind, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

ROUNDING = 6e-8
FAULT = 1e-3
#: What a module leaves of its inputs' error.
DECAY = 0.998
FAULT_STEP = 1
HIDDEN = 256

#: The modules of a layer: class, whether it has a weight, and its name on either side. Half of the names differ.
_PARTS: tuple[tuple[str, str, bool, str], ...] = (
    ("", "", False, "DecoderLayer"),
    ("input_layernorm", "input_layernorm", True, "RMSNorm"),
    ("self_attn", "self_attn", False, "Attention"),
    ("self_attn.q_proj", "self_attn.q_proj", True, "Linear"),
    ("self_attn.k_proj", "self_attn.k_proj", True, "Linear"),
    ("self_attn.v_proj", "self_attn.v_proj", True, "Linear"),
    ("self_attn.o_proj", "self_attn.o_proj", True, "Linear"),
    ("post_attention_layernorm", "pre_mlp_norm", True, "RMSNorm"),
    ("mlp", "feed_forward", False, "MLP"),
    ("mlp.gate_proj", "feed_forward.w1", True, "Linear"),
    ("mlp.up_proj", "feed_forward.w3", True, "Linear"),
    ("mlp.act_fn", "feed_forward.silu", False, "SiLU"),
    ("mlp.down_proj", "feed_forward.w2", True, "Linear"),
)

MAPPING = "version: 1\nrules:\n" + "".join(
    f"  - candidate: model.layers.{{i}}.{candidate}\n    reference: model.layers.{{i}}.{reference}\n"
    for candidate, reference, _, _ in _PARTS
    if candidate != reference
)


_Edge = tuple[int, int, EdgeSource]


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a synthetic run is."""

    layers: int
    steps: int

    @property
    def records(self) -> int:
        """Counts the records of one side."""
        return self.steps * len(_sites(self, reference=False)[1])

    @property
    def faulty_layer(self) -> int:
        """Gives the layer whose last linear is wrong from ``FAULT_STEP`` on."""
        return self.layers // 2

    @property
    def fault(self) -> str:
        """Gives the path of the module that is wrong in the candidate."""
        return f"model.layers.{self.faulty_layer}.mlp.down_proj"


FORMS = (Form("fp32", (4, 64, HIDDEN)), Form("fp32", (HIDDEN, HIDDEN)))


def write_run(
    path: Path, shape: Shape, *, side: str, rank: RankInfo | None = None, forms: Sequence[Form] = FORMS
) -> None:
    """Writes the candidate or the reference, or one rank of it with the forms of its activations and parameters."""
    nodes, sites, edges = _sites(shape, reference=side == "reference")
    header = RunHeader(framework="synthetic", versions={"synthetic": "1"}, arguments=("synthetic", side))
    kept = frozenset({"statistics", "sketch"})
    writer = RunWriter(path, rank=rank or RankInfo(), header=header, what=kept)
    for step in range(shape.steps):
        batch = Batch(step=step)
        if step == 0:
            batch.nodes, batch.sites, batch.edges = nodes, sites, edges
            batch.forms = list(forms)
            batch.facts = [Fact(0, 0, -1, "context", "side", side)]
        batch.records = _records(shape, sites, step, side)
        writer.submit(batch)
    writer.close()
    assert writer.failure is None, writer.failure


def _sites(shape: Shape, *, reference: bool) -> tuple[list[Node], list[SiteRow], list[_Edge]]:
    nodes = [Node("", NodeKind.MODULE, "Model", None), Node("model", NodeKind.MODULE, "Decoder", "")]
    sites: list[SiteRow] = []
    edges: list[_Edge] = []
    output, arrivals, departures = -1, [], []
    for layer in range(shape.layers):
        for part in _PARTS:
            name = part[1] if reference else part[0]
            path = f"model.layers.{layer}.{name}".rstrip(".")
            nodes.append(Node(path, NodeKind.MODULE, part[3], _parent(path, layer)))
            flow = _add_module(len(nodes) - 1, sites, edges, previous=output, weighted=part[2])
            output = flow.output
            arrivals.append(flow.arriving)
            departures.append(flow.leaving)
    backward = [*zip(departures[1:], arrivals[:-1], strict=True), (output, arrivals[-1])]
    edges += [(source, target, EdgeSource.TRACED) for source, target in backward]
    return nodes, sites, edges


def _parent(path: str, layer: int) -> str:
    block = f"model.layers.{layer}"
    return "model" if path == block else path.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class _Flow:
    """The sites by which data leaves a module, and by which gradients enter and leave it."""

    output: int
    arriving: int
    leaving: int


def _add_module(node: int, sites: list[SiteRow], edges: list[_Edge], *, previous: int, weighted: bool) -> _Flow:
    """Adds the sites of one module, fed by the output before it."""

    def add(direction: Direction, role: Role, argument: str, *sources: int) -> int:
        sites.append(SiteRow(node, direction, role, argument, 0))
        edges.extend((source, len(sites) - 1, EdgeSource.TRACED) for source in sources if source >= 0)
        return len(sites) - 1

    entered = add(Direction.FORWARD, Role.INPUT, "0", previous)
    weights = [add(Direction.FORWARD, Role.PARAMETER, "weight")] if weighted else []
    output = add(Direction.FORWARD, Role.OUTPUT, "0", entered, *weights)
    arriving = add(Direction.BACKWARD, Role.INPUT, "0")
    leaving = add(Direction.BACKWARD, Role.OUTPUT, "0", arriving, *weights)
    if weighted:
        gradient = add(Direction.BACKWARD, Role.GRADIENT, "weight", arriving, entered)
        add(Direction.UPDATE, Role.GRADIENT, "weight", gradient)
    return _Flow(output, arriving, leaving)


def _records(shape: Shape, sites: list[SiteRow], step: int, side: str) -> dict[str, NDArray[np.generic]]:
    count = len(sites)
    generator = np.random.default_rng(step)
    truth = dict(_statistics(generator, count))
    if side == "candidate":
        error = _errors(shape, sites, step)
        noise = np.random.default_rng(10_000 + step)
        for name in ("min", "max", "mean_abs", "m2", "norm"):
            truth[name] = truth[name] * (1 + error * noise.standard_normal(count))
        truth["mean"] = truth["mean"] + error * truth["norm"] * noise.standard_normal(count) * 1e-3
        truth["sketch"] = truth["sketch"] + (error * truth["norm"])[:, None] * noise.standard_normal(
            (count, SKETCH_SIZE)
        )
    zeros = np.zeros(count, np.int64)
    parameter = np.array([s.role in (Role.PARAMETER, Role.GRADIENT) for s in sites])
    return {
        "seq": np.arange(step * count, (step + 1) * count, dtype=np.uint64),
        "step": np.full(count, step, np.int64),
        "micro_step": np.zeros(count, np.int32),
        "site": np.arange(count, dtype=np.uint32),
        "form": parameter.astype(np.uint32),
        "status": np.full(count, Status.MEASURED, np.uint8),
        "has": np.full(count, HAS["statistics"] | HAS["sketch"], np.uint8),
        "tensor": np.full(count, -1, np.int64),
        **truth,
        **dict.fromkeys(("nan", "pos_inf", "neg_inf", "zero"), zeros),
    }


def _directions(generator: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Gives directions of a length at which a sketch estimates an error without spread: the benchmark is of speed."""
    drawn = generator.standard_normal((count, SKETCH_SIZE))
    lengths: NDArray[np.float64] = np.linalg.norm(drawn, axis=1, keepdims=True)
    return drawn * (SKETCH_SIZE**0.5 / lengths)


def _statistics(generator: np.random.Generator, count: int) -> Iterator[tuple[str, NDArray[np.float64]]]:
    elements = 4 * 64 * HIDDEN
    scale = generator.uniform(0.999, 1.001, count)
    mean = scale * generator.normal(0, 0.01, count)
    norm = scale * elements**0.5
    yield "min", -4 * scale
    yield "max", 4 * scale
    yield "mean", mean
    yield "mean_abs", 0.8 * scale
    yield "m2", norm**2 - elements * mean**2
    yield "norm", norm
    yield "sketch", norm[:, None] * generator.standard_normal((count, SKETCH_SIZE))


def _errors(shape: Shape, sites: list[SiteRow], step: int) -> NDArray[np.float64]:
    """Gives the relative error of each site: rounding, and behind the fault its size, less from module to module."""
    error = np.full(len(sites), ROUNDING)
    if step == 0:
        error[[site.role is Role.PARAMETER for site in sites]] = 0  # both sides start from the same weights
    if step < FAULT_STEP:
        return error
    first_weighted, last = 3, sites[-1].node
    faulty = 2 + shape.faulty_layer * len(_PARTS) + len(_PARTS) - 1
    origin = faulty if step == FAULT_STEP else first_weighted
    for i, site in enumerate(sites):
        if site.role is Role.PARAMETER:
            distance = 0 if step > FAULT_STEP else -1  # the update by wrong gradients
        elif site.direction is Direction.FORWARD:
            entering = site.node == origin and site.role is Role.INPUT
            distance = -1 if entering else site.node - origin
        else:
            distance = 2 * last - origin - site.node
        if distance >= 0:
            error[i] = FAULT * DECAY**distance
    return error
