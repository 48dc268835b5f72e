"""Collectives of two real processes: inputs before, outputs when complete, group, operation; results are unchanged."""

from __future__ import annotations

import os
import socket
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import multiprocessing, nn

import msprobe


class Reduces(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        dist.all_reduce(y)
        return y


def _collect(rank: int, port: int, path: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    original = dist.all_reduce
    alone = dist.new_group([0]), dist.new_group([1])
    model = nn.Sequential(Reduces(), nn.Linear(2, 1))
    with msprobe.record(model, path, what="statistics,tensors", collectives=True, trace=False) as probe:
        mine = torch.full((2, 2), float(rank + 1))
        with torch.no_grad():
            result = model[0](mine)
        assert torch.equal(result, torch.full((2, 2), 6.0))
        slow = torch.full((3,), float(rank))
        work: Any = dist.all_reduce(slow, op=dist.ReduceOp.MAX, async_op=True)
        assert isinstance(work, dist.Work)
        work.wait()
        assert work.is_completed()
        parts = [torch.empty(2, 2) for _ in range(2)]
        dist.all_gather(parts, mine)
        exchanged = torch.empty(2)
        dist.all_to_all_single(exchanged, torch.tensor([10.0 * rank, 10.0 * rank + 1]))
        dist.broadcast(slow, src=1)
        dist.all_reduce(mine, group=alone[rank])
        names: list[Any] = [None, None]
        dist.all_gather_object(names, f"rank {rank}")
        assert names == ["rank 0", "rank 1"]
        probe.step()
    assert dist.all_reduce is original
    dist.destroy_process_group()


def test_collectives_are_recorded_before_and_after(tmp_path, read):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(_collect, (port, str(tmp_path / "run")), nprocs=2)
    for rank in range(2):
        run = read(tmp_path / "run", rank)
        assert run.events == []

        def tensor(place, run=run):
            return run.at(place).tensor

        np.testing.assert_array_equal(tensor("0/all_reduce|forward|input|tensor|0"), np.full((2, 2), 2.0 * (rank + 1)))
        np.testing.assert_array_equal(tensor("0/all_reduce|forward|output|tensor|0"), np.full((2, 2), 6.0))
        np.testing.assert_array_equal(tensor("0|forward|output|0|0"), np.full((2, 2), 6.0))
        np.testing.assert_array_equal(tensor("outside/all_reduce|forward|input|tensor|0"), np.full(3, float(rank)))
        np.testing.assert_array_equal(tensor("outside/all_reduce|forward|output|tensor|0"), np.ones(3))
        np.testing.assert_array_equal(tensor("outside/all_gather|forward|output|tensor_list.1|0"), np.full((2, 2), 2.0))
        np.testing.assert_array_equal(tensor("outside/all_to_all_single|forward|output|output|0"), [rank, 10 + rank])
        given = [place for place in run.places(0) if place.startswith("outside/broadcast|forward|input")]
        assert len(given) == (rank == 1)
        [setting] = run.fact("outside/all_reduce", "collective", "setting")
        assert setting == {"ranks": [0, 1], "size": 2, "reduce": "MAX", "asynchronous": True, "no_op": False}
        [setting] = run.fact("outside/all_reduce@1", "collective", "setting")
        assert (setting["ranks"], setting["no_op"]) == ([rank], True)
        assert not [path for path in run.nodes if "all_gather_object" in path]
