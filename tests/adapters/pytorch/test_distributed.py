"""Two processes with gloo: each writes its own rank."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import multiprocessing, nn

import msprobe


def _train(rank: int, port: int, path: str, late: bool) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model: nn.Module = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    if late:
        probe = msprobe.record(model, path, what="statistics,tensors", ranks="1")
        dist.init_process_group("gloo", rank=rank, world_size=2)
    else:
        dist.init_process_group("gloo", rank=rank, world_size=2)
        model = nn.parallel.DistributedDataParallel(model)
        probe = msprobe.record(model, path, what="statistics,tensors")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with probe:
        for step in range(2):
            optimizer.zero_grad()
            model(torch.full((2, 3), float(rank + step + 1))).sum().backward()
            optimizer.step()
            probe.step()
    dist.destroy_process_group()


def _run(path: Path, *, late: bool) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(_train, (port, str(path), late), nprocs=2)


@pytest.mark.long
def test_each_rank_of_ddp_is_recorded(tmp_path, read):
    _run(tmp_path / "run", late=False)
    runs = [read(tmp_path / "run", rank) for rank in range(2)]
    for rank, run in enumerate(runs):
        assert (run.rank.info.rank, run.rank.info.world_size) == (rank, 2)
        assert run.nodes[""].class_name == "Sequential"
        assert {"0|forward|output|0|0", "0|backward|gradient|weight|0"} <= set(run.places(1))
        assert run.events == []
    own = [run.at("0|backward|gradient|weight|0").tensor for run in runs]
    reduced = [run.at("0|update|gradient|weight|0").tensor for run in runs]
    assert (reduced[0] == reduced[1]).all()
    assert not (own[0] == own[1]).all()
    torch.testing.assert_close(torch.tensor((own[0] + own[1]) / 2), torch.tensor(reduced[0]))


@pytest.mark.long
def test_a_rank_that_becomes_known_later_is_the_one_recorded(tmp_path, read):
    _run(tmp_path / "run", late=True)
    run = read(tmp_path / "run", 1)
    assert run.rank.info.rank == 1
    assert sorted({row.step for row in run.rows})[-1] == 1
