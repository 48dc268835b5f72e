"""Runs a layout in real processes: they fork from one server that has torch loaded, so that starting costs little."""

from __future__ import annotations

import hashlib
import os
import pickle
import socket
import sys
import time
import traceback
from contextlib import nullcontext
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any

#: Seconds after which a layout is given up.
TIME_LIMIT = 100


@dataclass(frozen=True)
class Rank:
    """What the training function of a layout gets."""

    rank: int
    world: int
    out: str
    #: The seeded fault, or None.
    fault: str | None
    #: Options of the recording.
    options: dict[str, Any] = field(default_factory=dict)

    def record(self, model: Any, **options: Any) -> Any:
        """Starts recording into the run of the layout; with the setting ``off`` nothing is recorded."""
        import msprobe

        if self.options.get("off"):
            return nullcontext(SimpleNamespace(step=lambda: None))
        return msprobe.record(model, self.out, **{"what": "statistics,sketch,checksums", **self.options, **options})

    def keep_weights(self, model: Any) -> None:
        """Writes what training made of this rank's weights, to be compared bit for bit."""
        digest = hashlib.sha256()
        for parameter in model.parameters():
            digest.update(getattr(parameter, "_local_tensor", parameter).detach().numpy().tobytes())
        Path(f"{self.out}-weights-{self.rank}").write_text(digest.hexdigest())


def run_layout(
    name: str, out: Path | str, fault: str | None = None, *, options: dict[str, Any] | None = None, **settings: Any
) -> Path:
    """Trains a layout of ``LAYOUTS`` into a run at ``out``.

    ``settings`` go to the training function, such as ``dropout=0.1``. Raises AssertionError with the processes'
    tracebacks when one fails.
    """
    from tests.parallel.registry import LAYOUTS

    world, function = LAYOUTS[name]
    context = get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch.distributed.tensor", "msprobe", "tests.parallel.preloaded"])
    failures = context.SimpleQueue()
    port = _free_port()
    asked = pickle.dumps(settings)
    processes = [
        context.Process(
            target=_run_rank, args=(function, Rank(rank, world, str(out), fault, options or {}), port, asked, failures)
        )
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    _wait(processes)
    told = []
    while not failures.empty():
        told.append(failures.get())
    assert not told, "\n".join(told)
    assert [process.exitcode for process in processes] == [0] * world
    return Path(out)


def _wait(processes: list[Any]) -> None:
    deadline = time.monotonic() + TIME_LIMIT
    while any(process.is_alive() for process in processes):
        failed = any(process.exitcode not in (None, 0) for process in processes)
        if failed or time.monotonic() > deadline:
            for process in processes:
                process.join(1 if failed else 0)
                process.kill()
        processes[0].join(0.05)
        time.sleep(0.02)
    for process in processes:
        process.join()


def _run_rank(function: str, rank: Rank, port: int, settings: bytes, failures: Any) -> None:
    import torch
    from torch import distributed

    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank.rank), WORLD_SIZE=str(rank.world),
        LOCAL_RANK=str(rank.rank), OMP_NUM_THREADS="1",
    )  # fmt: skip
    torch.set_num_threads(1)
    try:
        if rank.world > 1:
            distributed.init_process_group("gloo", rank=rank.rank, world_size=rank.world)
        module, _, attribute = function.partition(":")
        getattr(import_module(module), attribute)(rank, **pickle.loads(settings))
        if rank.world > 1:
            distributed.barrier()
            distributed.destroy_process_group()
    except BaseException:  # noqa: BLE001 -- the test that waits tells it
        failures.put(f"rank {rank.rank}:\n{traceback.format_exc()}")
        sys.stdout.flush()
        os._exit(1)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
