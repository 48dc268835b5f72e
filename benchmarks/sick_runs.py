"""Writes the run of a mixture of experts in which one expert gets no token and its gradient becomes NaN.

Nothing is trained: the numbers are made up, and go through the real writer as those of any recording do. The NaN takes
the way that it takes in the world: gradient of one expert on one rank, by reduction its group, their parameters, in the
next step all that these ranks compute, by reduction of the other gradients every rank.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.graph import EdgeSource
from msprobe.core.run.batch import Batch, Fact, RankInfo, RunHeader, SiteRow
from msprobe.core.run.writer import RunWriter
from msprobe.core.sites import Direction, Form, Node, NodeKind, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

HIDDEN = 64
TOKENS = 32


@dataclass(frozen=True)
class SickExpert:
    """A run of ``ranks`` ranks: ``expert_parallel`` of them hold all experts of a layer, the rest are replicas.

    At ``step``, in micro-step ``micro_step``, on rank ``rank``, expert ``expert`` of layer ``layer`` gets no token.
    ``step`` None: nothing happens.
    """

    ranks: int = 512
    steps: range = range(44, 57)
    micro_steps: int = 1
    layers: int = 2
    experts: int = 2
    expert_parallel: int = 8
    step: int | None = 52
    rank: int = 99
    expert: int = 0
    layer: int = 1
    micro_step: int = 0
    seed: int = 0
    #: Whether the gradient is NaN; else it is zero, as a right implementation has it.
    harmful: bool = True
    #: Whether the recording knows the data flow.
    traced: bool = True

    @property
    def sick_parameter(self) -> str:
        """Path of the module whose gradient becomes NaN."""
        return f"model.layers.{self.layer}.mlp.experts.{self.expert}.fc1"

    @property
    def group(self) -> list[int]:
        """The ranks that hold the same experts as the sick rank."""
        return [r for r in range(self.ranks) if r % self.expert_parallel == self.rank % self.expert_parallel]

    def mesh(self, rank: int) -> dict[str, tuple[int, int]]:
        """Gives a rank's place."""
        parts = self.expert_parallel
        return {"ep": (rank % parts, parts), "dp": (rank // parts, self.ranks // parts)}

    @cached_property
    def model(self) -> Model:
        """The catalogue that every rank records."""
        return Model(self)


class Model:
    """Nodes, sites and data flow of a small transformer with experts."""

    def __init__(self, plan: SickExpert) -> None:
        self.nodes = [Node("", NodeKind.MODULE, "Model", None)]
        self.sites: list[SiteRow] = []
        self.edges: list[tuple[int, int, EdgeSource]] = []
        #: By (node path, direction, role): the number of the site.
        self.numbers: dict[tuple[str, str, str], int] = {}
        self.experts: list[list[str]] = []
        parts = [p for layer in range(plan.layers) for p in self._add_layer(layer, plan)]
        self._add_forward(parts)
        self._add_backward(parts)

    def _add_layer(self, layer: int, plan: SickExpert) -> Iterator[str]:
        base = f"model.layers.{layer}"
        names = [f"{base}.mlp.experts.{e}.fc1" for e in range(plan.experts)]
        self.experts.append(names)
        for path, kind in (
            (f"{base}.norm", "RMSNorm"),
            (f"{base}.mlp.router", "Router"),
            *((n, "Linear") for n in names),
        ):
            self.nodes.append(Node(path, NodeKind.MODULE, kind, path.rpartition(".")[0]))
            yield path

    def _add(self, path: str, direction: Direction, role: Role, argument: str, *sources: int) -> int:
        node = next(i for i, n in enumerate(self.nodes) if n.path == path)
        self.sites.append(SiteRow(node, direction, role, argument, 0))
        number = len(self.sites) - 1
        self.numbers[path, direction.value, role.value] = number
        self.edges += [(source, number, EdgeSource.TRACED) for source in sources]
        return number

    def _add_forward(self, parts: list[str]) -> None:
        previous: list[int] = []
        outputs: list[int] = []
        for path in parts:
            entered = self._add(path, Direction.FORWARD, Role.INPUT, "0", *previous)
            weight = self._add(path, Direction.FORWARD, Role.PARAMETER, "weight")
            output = self._add(path, Direction.FORWARD, Role.OUTPUT, "0", entered, weight)
            if "experts" in path:
                outputs.append(output)
            else:
                previous, outputs = [*(outputs if path.endswith("norm") else ()), output], []
        self._last = outputs

    def _add_backward(self, parts: list[str]) -> None:
        arriving = self._last
        for path in reversed(parts):
            weight = self.numbers[path, "forward", "parameter"]
            entered = self.numbers[path, "forward", "input"]
            arrived = self._add(path, Direction.BACKWARD, Role.INPUT, "0", *arriving)
            left = self._add(path, Direction.BACKWARD, Role.OUTPUT, "0", arrived, weight)
            self._add(path, Direction.BACKWARD, Role.GRADIENT, "weight", arrived, entered)
            if "experts" not in path:
                arriving = [left]
        for path in parts:
            self._add(path, Direction.REDUCE, Role.GRADIENT, "weight")
        for path in parts:
            self._add(path, Direction.UPDATE, Role.PARAMETER, "weight")

    @cached_property
    def roles(self) -> NDArray[np.str_]:
        """Direction and role of each site."""
        return np.array([f"{s.direction.value} {s.role.value}" for s in self.sites])

    @cached_property
    def in_group(self) -> NDArray[np.bool_]:
        """Marks the sites of experts, whose gradients are reduced within their group only."""
        return np.array(["experts" in self.nodes[s.node].path for s in self.sites])


def write_sick_expert(path: Path, plan: SickExpert) -> None:
    """Writes the run: ranks in any order, each with a clock of its own."""
    order = np.random.default_rng(plan.seed)
    for rank in order.permutation(plan.ranks).tolist():
        info = RankInfo(rank, plan.ranks, plan.mesh(rank))
        writer = RunWriter(path, rank=info, header=RunHeader("simulated"), what=frozenset({"statistics"}))
        for step in plan.steps:
            writer.submit(_batch(plan, rank, step))
        writer.close()
        if writer.failure:
            raise RuntimeError(writer.failure)
        _shift_clock(path / "ranks" / f"{rank:05d}", float(order.uniform(-3_600, 3_600)))


def _shift_clock(folder: Path, seconds: float) -> None:
    """Makes a rank's files tell another time, as hosts with unequal clocks do."""
    commits = folder / "commits-0001"
    lines = [json.loads(line) for line in commits.read_text().splitlines()]
    commits.write_text("".join(json.dumps(line | {"time": line["time"] + seconds}) + "\n" for line in lines))
    segment = folder / "segment-0001.json"
    content = json.loads(segment.read_text())
    segment.write_text(json.dumps(content | {"started": content["started"] + seconds}))


def _batch(plan: SickExpert, rank: int, step: int) -> Batch:
    model = plan.model
    batch = Batch(step)
    if step == plan.steps[0]:
        batch.nodes, batch.sites = list(model.nodes), list(model.sites)
        batch.edges = list(model.edges) if plan.traced else []
        batch.forms = [Form("bf16", (TOKENS, HIDDEN)), Form("bf16", (HIDDEN, HIDDEN)), Form("bf16", (0, HIDDEN))]
    parts = [_records(plan, rank, step, micro) for micro in range(plan.micro_steps)]
    batch.records = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    batch.records["seq"] = np.arange(len(batch.records["site"]), dtype=np.uint64) + 10_000 * step
    lost = plan.harmful and plan.step is not None and (step > plan.step or (step == plan.step and rank in plan.group))
    value = float("nan") if lost else 3.0 + 0.1 * float(np.sin(step))
    batch.facts = [Fact(step, 0, -1, "scalar", "grad_norm", value)]
    return batch


def _records(plan: SickExpert, rank: int, step: int, micro: int) -> dict[str, NDArray[np.generic]]:
    roles = plan.model.roles
    whole_step = np.isin(roles, ("reduce gradient", "update parameter"))
    kept = ~whole_step if micro < plan.micro_steps - 1 else np.ones(len(roles), bool)
    if micro:
        kept &= roles != "forward parameter"
    site = np.flatnonzero(kept)
    noise = np.exp(0.05 * np.random.default_rng([plan.seed, rank, step, micro]).standard_normal((2, len(roles))))[
        :, site
    ]
    nan, empty = _sickness(plan, rank, step, micro)
    nan, empty = nan[site], empty[site]
    parameter = np.isin(roles[site], ("forward parameter", "update parameter")) | np.char.endswith(
        roles[site], "gradient"
    )
    elements = np.where(empty, 0, np.where(parameter, HIDDEN * HIDDEN, TOKENS * HIDDEN))
    gone = nan | empty
    measures = {
        "min": -4 * noise[1], "max": 4 * noise[1], "mean": 0.01 * noise[0], "mean_abs": 0.8 * noise[0],
        "m2": elements * noise[0] ** 2, "norm": np.sqrt(elements) * noise[0],
    }  # fmt: skip
    measures = {name: np.where(gone, np.nan, column) for name, column in measures.items()}
    measures |= {name: np.where(gone, 0.0, measures[name]) for name in ("m2", "norm")}
    zeros = np.zeros(len(site), np.int64)
    return {
        "step": np.full(len(site), step), "micro_step": np.full(len(site), micro), "site": site,
        "form": np.where(empty, 2, np.where(parameter, 1, 0)), "status": zeros, "has": zeros + 1, "tensor": zeros - 1,
        **measures, "nan": np.where(nan, elements, 0), "pos_inf": zeros, "neg_inf": zeros, "zero": zeros,
    }  # fmt: skip


def _sickness(plan: SickExpert, rank: int, step: int, micro: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Marks the sites that are NaN and those that are without elements."""
    model = plan.model
    nan, empty = np.zeros(len(model.sites), bool), np.zeros(len(model.sites), bool)
    if plan.step is None or step < plan.step or not (plan.harmful or step == plan.step):
        return nan, empty
    path, numbers, in_group = plan.sick_parameter, model.numbers, rank in plan.group
    if step == plan.step:
        if (rank, micro) == (plan.rank, plan.micro_step):
            nan[numbers[path, "backward", "gradient"]] = plan.harmful
            for direction in ("forward", "backward"):
                empty[[numbers[path, direction, role] for role in ("input", "output")]] = True
        if in_group and plan.harmful:
            nan[numbers[path, "reduce", "gradient"]] = nan[numbers[path, "update", "parameter"]] = True
        return nan, empty
    if step > plan.step + 1:
        nan[:] = True
        return nan, empty
    if in_group:  # the step after: these ranks compute with the NaN parameter
        parameter = numbers[path, "forward", "parameter"]
        nan[parameter] = nan[numbers[path, "forward", "output"]] = True
        end_of_layer = numbers[model.experts[plan.layer][-1], "forward", "output"]
        nan |= np.arange(len(nan)) > end_of_layer
    nan |= np.isin(model.roles, ("reduce gradient", "update parameter")) & ~model.in_group
    return nan, empty
