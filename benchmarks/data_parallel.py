"""What the full weight-gradient path costs under DDP and FSDP2: recorded and unrecorded steps in turns, two processes.

``python -m benchmarks.data_parallel`` prints for each wrapper the median time of a step on rank 0, without and with the
gradients before reduction, after it and at the optimizer, and the ratio, of wall clock and of processor time. That
holds on a busy machine as well.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import tempfile
import time
from typing import Any

import torch
from torch import distributed, multiprocessing, nn

WAYS = ("ddp", "fsdp2")
#: Steps before the first that counts, and counted steps of each kind.
WARM, COUNTED = 2, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--what", default="statistics")
    asked = parser.parse_args()
    for way in WAYS:
        with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
            free.close()
            multiprocessing.spawn(_measure, (way, port, f"{folder}/run", vars(asked)), nprocs=2)  # type: ignore[no-untyped-call]


def _measure(rank: int, way: str, port: int, out: str, asked: dict[str, Any]) -> None:
    import msprobe

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    distributed.init_process_group("gloo", rank=rank, world_size=2)
    model = _wrapped(way, asked["width"], asked["layers"])
    optimizer = torch.optim.AdamW(model.parameters())
    batch = torch.randn(asked["tokens"], asked["width"])
    quiet = dict.fromkeys(("inputs", "outputs", "parameters", "buffers", "trace"), False)
    options: dict[str, Any] = {"what": asked["what"], "every": 2, **quiet}
    times: list[list[tuple[float, float]]] = [[], []]
    with msprobe.record(model, out, optimizer=optimizer, **options):
        for step in range(2 * (WARM + COUNTED)):
            times[step % 2].append(_step(model, optimizer, batch))
    if rank == 0:
        count = sum(parameter.numel() for parameter in model.parameters())
        print(f"{way}: {count / 1e6:.1f} M parameters on rank 0", end="")
        for clock, name in enumerate(("wall", "processor")):
            on, off = (statistics.median(entry[clock] for entry in kind[WARM:]) for kind in times)
            print(f"; {name} {off * 1e3:.0f} -> {on * 1e3:.0f} ms, ratio {on / off:.3f}", end="")
        print(flush=True)
    distributed.destroy_process_group()


def _wrapped(way: str, width: int, layers: int) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    blocks = [nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(layers)]
    model = nn.Sequential(*blocks)
    if way == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    mesh = distributed.device_mesh.init_device_mesh("cpu", (2,))
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> tuple[float, float]:
    wall, processor = time.perf_counter(), time.process_time()
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    return time.perf_counter() - wall, time.process_time() - processor


if __name__ == "__main__":
    main()
