"""Gradients of data-parallel trainings, before and after their reduction, against a computation by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import msprobe
from msprobe.core.checksums import checksums_of
from msprobe.core.placement import read_layout
from tests.parallel.data_parallel import CLIPPED, MICRO_STEPS, gradients_of, make_tied_model
from tests.parallel.launching import run_layout
from tests.parallel.transformer import Config

CONFIG = Config(layers=1, batch=8)
WAYS = ["ddp", "fsdp1", pytest.param("fsdp1-flat", marks=pytest.mark.long), "fsdp2"]


class Recorded:
    """Records of one rank by (direction, role, name of the parameter, step, micro-step)."""

    def __init__(self, run: Any, rank: int) -> None:
        self.rank = run.rank(rank)
        self.rows: dict[tuple[str, str, str, int, int], int] = {}
        records = self.rank.records
        for row, number in enumerate(records["site"].tolist()):
            site = self.rank.sites.site(number)
            name = f"{site.node}.{site.argument}" if site.node else site.argument
            key = (
                site.direction.value,
                site.role.value,
                name,
                int(records["step"][row]),
                int(records["micro_step"][row]),
            )
            assert key not in self.rows or site.role.value in ("input", "output"), f"{key} is recorded twice"
            self.rows[key] = row

    def part(self, key: tuple[str, str, str, int, int], whole: Tensor) -> tuple[Any, Any]:
        """Gives a recorded tensor, and the same part of a whole one."""
        row = self.rows[key]
        local = self.rank.tensor(row)
        layout = read_layout(self.rank.forms[int(self.rank.records["form"][row])].layout)
        if layout is None:
            return local, whole.numpy()
        assert layout.global_shape == tuple(whole.shape), key
        starts, length = layout.runs()
        indices = (starts[:, None] + np.arange(length)).reshape(-1)
        return local.reshape(-1), whole.reshape(-1).numpy()[indices]

    def layout(self, key: tuple[str, str, str, int, int]) -> Any:
        return read_layout(self.rank.forms[int(self.rank.records["form"][self.rows[key]])].layout)


class ByHand:
    """The same training in this process: a rank's gradients one after the other."""

    def __init__(self, world: int) -> None:
        self.own: dict[tuple[int, int, int, str], Tensor] = {}
        self.reduced: dict[tuple[int, int, str], Tensor] = {}
        self.weights: dict[tuple[int, str], Tensor] = {}
        model = make_tied_model(CONFIG)
        for step in range(CONFIG.steps):
            gathered = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
            for name, p in model.named_parameters():
                self.weights[step, name] = p.detach().clone()
            for micro_step in range(MICRO_STEPS):
                for rank in range(world):
                    model.zero_grad()
                    gradients_of(model, CONFIG, step, micro_step, rank, world)
                    for name, p in model.named_parameters():
                        if p.grad is not None:
                            self.own[step, micro_step, rank, name] = p.grad.clone()
                            gathered[name] += p.grad / world
                self.reduced |= {(step, micro_step, name): total.clone() for name, total in gathered.items()}
            with torch.no_grad():
                for name, p in model.named_parameters():
                    p.sub_(CONFIG.learning_rate * CLIPPED * gathered[name])


def _check_close(pair: tuple[Any, Any], key: object) -> None:
    np.testing.assert_allclose(*pair, rtol=2e-5, atol=2e-7, err_msg=str(key))


def _check_rank(
    recorded: Recorded, hand: ByHand, rank: int, *, idle_has_none: bool = False, each_is_reduced: tuple[int, ...] = (1,)
) -> None:
    names = [name for step, name in hand.weights if step == 0]
    for step in range(CONFIG.steps):
        for name in names:
            key = ("forward", "parameter", name, step, 0)
            _check_close(recorded.part(key, hand.weights[step, name]), key)
            for micro_step in range(MICRO_STEPS):
                own = hand.own.get((step, micro_step, rank, name))
                key = ("backward", "gradient", name, step, micro_step)
                assert (key in recorded.rows) == (own is not None), key
                if own is not None:
                    _check_close(recorded.part(key, own), key)
                    assert recorded.layout(key).scale == recorded.rank.info.world_size
                key = ("reduce", "gradient", name, step, micro_step)
                reduces = step in each_is_reduced or micro_step == MICRO_STEPS - 1
                if not name.startswith("idle"):
                    assert (key in recorded.rows) == reduces, key
                elif idle_has_none:
                    assert key not in recorded.rows
                if key in recorded.rows:
                    total = hand.reduced[step, micro_step, name]
                    _check_close(recorded.part(key, total), key)
            key = ("update", "gradient", name, step, 0)
            if key in recorded.rows:
                clipped = CLIPPED * hand.reduced[step, MICRO_STEPS - 1, name]
                _check_close(recorded.part(key, clipped), key)


def _check(way: str, path: Path, world: int) -> None:
    layout = "micro-steps" if world == 2 else "micro-steps of four"
    options = {"what": "statistics,sketch,checksums,tensors"}
    run = msprobe.open_run(run_layout(layout, path, options=options, way=way, layers=CONFIG.layers, batch=CONFIG.batch))
    hand = ByHand(world)
    ranks = [Recorded(run, rank) for rank in range(world)]
    for number, recorded in enumerate(ranks):
        assert [event for event in recorded.rank.events if event.kind != "altered"] == []
        _check_rank(recorded, hand, number, idle_has_none=way in ("fsdp2", "hsdp", "ddp"))
    # FSDP shares weights inside of one unit: the tied one has both names, and one content.
    assert ("update", "gradient", "head.weight", 0, 0) in ranks[0].rows
    _check_checksums(ranks, make_tied_model(CONFIG))


def _check_checksums(ranks: list[Recorded], model: torch.nn.Module) -> None:
    """The checksums of distinct shards add up to that of the whole, which was never gathered for it."""
    for name, parameter in model.named_parameters():
        key = ("forward", "parameter", name, 0, 0)
        shards = {}
        for recorded in ranks:
            layout = recorded.layout(key)
            shards[layout.spans, layout.flat] = int(recorded.rank.records["checksum"][recorded.rows[key]])
        whole, _ = checksums_of(parameter.detach().numpy())
        assert sum(shards.values()) % 2**64 == whole, name


@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_those_computed_by_hand_and_recording_changes_no_bit(way, tmp_path):
    _check(way, tmp_path / "run", 2)


@pytest.mark.long
@pytest.mark.parametrize("way", ["hsdp", "fsdp1-hybrid"])
def test_gradients_over_two_axes_are_those_computed_by_hand(way, tmp_path):
    _check(way, tmp_path / "run", 4)


def test_a_sharded_optimizer_is_taken_apart_by_a_finder(tmp_path):
    """A stand-in for those of Megatron and DeepSpeed: see ``sharded_optimizer``."""
    options = {"what": "statistics,sketch,checksums,tensors"}
    path = run_layout("sharded optimizer", tmp_path / "run", options=options, layers=CONFIG.layers, batch=CONFIG.batch)
    run, hand = msprobe.open_run(path), ByHand(2)
    for rank in range(2):
        recorded = Recorded(run, rank)
        assert recorded.rank.events == []
        _check_rank(recorded, hand, rank, each_is_reduced=())
        assert recorded.rank.info.mesh == {"fsdp": [rank, 2]}
