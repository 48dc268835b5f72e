"""One training under one tool, step by step on command; ``benchmarks.recording`` runs one process of it per variant.

It is a plain script, so that it can run in an environment of another tool whose package has the same name as ours.
Commands come on standard input, answers are lines of JSON: ``steps N`` trains N steps, ``split N`` does so with clocks
in the reducer, ``read N`` reads N bytes once and ``write N`` writes as many, ``finish`` ends the recording. ``idle N``
trains N steps without and N steps with a probe that is attached and does not record.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

BATCH, SEQUENCE = 2, 128


@dataclass
class Training:
    """A Llama of random weights that learns one batch by heart."""

    model: Any
    optimizer: Any
    tokens: torch.Tensor

    @classmethod
    def of(cls, hidden: int, layers: int, vocabulary: int) -> Training:
        """Makes the model, the same each time."""
        torch.manual_seed(0)
        config = LlamaConfig(
            hidden_size=hidden,
            intermediate_size=hidden * 11 // 4,
            num_hidden_layers=layers,
            num_attention_heads=8,
            num_key_value_heads=8,
            vocab_size=vocabulary,
            use_cache=False,
        )
        model = LlamaForCausalLM(config)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
        return cls(model, optimizer, torch.randint(0, vocabulary, (BATCH, SEQUENCE)))

    def step(self) -> None:
        """Trains one step."""
        loss = self.model(input_ids=self.tokens, labels=self.tokens).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


class Off:
    """No tool at all."""

    def __init__(self, training: Training, folder: Path, options: dict[str, Any]) -> None:
        self.training, self.folder = training, folder
        self._order = ["idle", "off"]

    def idle(self, steps: int) -> dict[str, float]:
        """Trains without and with an idle probe in this very process, first one, then the other; gives CPU seconds."""
        import msprobe

        found: dict[str, float] = {}
        self._order.reverse()
        for name in self._order:
            with contextlib.ExitStack() as stack:
                if name == "idle":
                    probe = msprobe.record(
                        self.training.model, self.folder, optimizer=self.training.optimizer, steps="1000000-"
                    )
                    stack.enter_context(probe)
                found[name] = self._seconds(steps)
        return found

    def _seconds(self, steps: int) -> float:
        begin = time.process_time()
        for _ in range(steps):
            self.training.step()
        return time.process_time() - begin

    def step(self) -> None:
        """Trains one step under the tool."""
        self.training.step()

    def finish(self) -> dict[str, Any]:
        """Ends the recording; gives what it holds."""
        return {}


class Msprobe(Off):
    """This project's recorder."""

    def __init__(self, training: Training, folder: Path, options: dict[str, Any]) -> None:
        super().__init__(training, folder, options)
        import msprobe

        self.probe: Any = msprobe.record(training.model, folder, optimizer=training.optimizer, **options)

    def finish(self) -> dict[str, Any]:
        """Ends the recording; gives how many records a step has."""
        import msprobe

        self.probe.close()
        if not self.folder.exists():
            return {"records": 0}
        steps = msprobe.open_run(self.folder).rank(0).records["step"]
        return {"records": int((steps == steps[-1]).sum()) if len(steps) else 0}

    def split(self, steps: int) -> dict[str, float]:
        """Trains some steps; gives the seconds a step in which the reducer read tensors, and how many bytes."""
        recorder = self.probe.recorder
        reducer = recorder._reducer
        found = {"measuring": 0.0, "measured": 0.0, "bytes": 0.0}

        def clocked(measure: Callable[..., Any]) -> Callable[..., Any]:
            def call(tensor: torch.Tensor, *arguments: Any) -> Any:
                begin = time.thread_time()
                result = measure(tensor, *arguments)
                found["measuring"] += time.thread_time() - begin
                if result is not None:
                    found["measured"] += 1
                    found["bytes"] += tensor.numel() * tensor.element_size()
                return result

            return call

        for name in ("measure", "snapshot", "rows"):
            setattr(reducer, name, clocked(getattr(reducer, name)))
        plain, recorder._measure_plain = recorder._measure_plain, clocked(recorder._measure_plain)
        for _ in range(steps):
            self.step()
        for name in ("measure", "snapshot", "rows"):
            delattr(reducer, name)
        recorder._measure_plain = plain
        return {name: value / steps for name, value in found.items()}


class MindStudio(Off):
    """The dump of mindstudio-probe."""

    def __init__(self, training: Training, folder: Path, options: dict[str, Any]) -> None:
        super().__init__(training, folder, options)
        from msprobe.pytorch import PrecisionDebugger  # type: ignore[import-not-found]

        folder.mkdir(parents=True)
        config = folder.with_suffix(".json")
        settings = {"scope": [], "list": [], "data_mode": ["all"], **options.pop("settings", {})}
        whole = {"rank": [], "step": [], "dump_path": str(folder), **options, options["task"]: settings}
        config.write_text(json.dumps(whole))
        self.debugger: Any = PrecisionDebugger(config_path=str(config))

    def step(self) -> None:
        """Trains one step between start and stop, as its manual says."""
        self.debugger.start(model=self.training.model)
        self.training.step()
        self.debugger.stop()
        self.debugger.step()

    def finish(self) -> dict[str, Any]:
        """Gives how many tensors the last step's dump has."""
        last = max(self.folder.glob("step*/*/dump.json"), key=lambda p: int(p.parts[-3].removeprefix("step")))
        return {"records": _tensors_in(json.loads(last.read_text())["data"])}


class MindStudioMonitor(Off):
    """The monitor of mindstudio-probe, weight gradients only."""

    def __init__(self, training: Training, folder: Path, options: dict[str, Any]) -> None:
        super().__init__(training, folder, options)
        os.environ["MONITOR_OUTPUT_DIR"] = str(folder)
        folder.mkdir(parents=True)
        config = folder.with_suffix(".json")
        config.write_text(json.dumps({"targets": {}, "format": "csv", "wg_distribution": True, **options}))
        from msprobe.pytorch import TrainerMon  # type: ignore[import-not-found]

        monitor = TrainerMon(config_file_path=str(config), params_have_main_grad=False)
        monitor.set_monitor(training.model, grad_acc_steps=1, optimizer=training.optimizer)


TOOLS = {"off": Off, "msprobe": Msprobe, "mindstudio": MindStudio, "mindstudio-monitor": MindStudioMonitor}


def _seconds_to_read(nbytes: int) -> float:
    block, seconds = torch.ones(2**24), []
    for _ in range(7):
        begin = time.thread_time()
        block.sum()
        seconds.append(time.thread_time() - begin)
    return sorted(seconds)[3] * nbytes / (block.numel() * block.element_size())


def _seconds_to_write(folder: Path, nbytes: int) -> float:
    """Gives the CPU seconds in which the bytes of a step go to one file, in pieces of 1 MiB."""
    folder.mkdir(parents=True, exist_ok=True)
    path, piece, seconds = folder / "plain.bin", torch.ones(2**18).numpy().data, []
    for _ in range(5):
        begin = time.thread_time()
        with path.open("wb", buffering=0) as file:
            for _ in range(max(1, nbytes >> 20)):
                file.write(piece)
        seconds.append(time.thread_time() - begin)
        path.unlink()
    return sorted(seconds)[2]


def _tensors_in(value: Any) -> int:
    if isinstance(value, dict):
        return int("shape" in value and "dtype" in value) or sum(map(_tensors_in, value.values()))
    return sum(map(_tensors_in, value)) if isinstance(value, list) else 0


def main() -> None:
    """Answers commands until the input ends."""
    task = json.loads(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what tools print must not get between the answers
    torch.set_num_threads(1)
    tool = TOOLS[task["tool"]](Training.of(*task["size"]), Path(task["folder"]), task["options"])
    cpu, peak, has_read = time.process_time(), 0, False
    for line in sys.stdin:
        command, _, number = line.strip().partition(" ")
        begin = time.perf_counter()
        answer: dict[str, Any] = {}
        if command == "steps":
            for _ in range(int(number)):
                tool.step()
            now = time.process_time()
            answer = {"wall": time.perf_counter() - begin, "cpu": now - cpu}
            cpu = now  # so what the writer's thread does after this counts for the next round
            if not has_read:  # which takes memory of its own
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        elif command == "split" and isinstance(tool, Msprobe):
            answer = tool.split(int(number))
        elif command == "read":
            answer, has_read = {"seconds": _seconds_to_read(int(number))}, True
        elif command == "write":
            answer = {"seconds": _seconds_to_write(tool.folder, int(number))}
        elif command == "idle":
            answer = tool.idle(int(number))
        elif command == "finish":
            answer = {"peak": peak * (1 if sys.platform == "darwin" else 1024), **tool.finish()}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
