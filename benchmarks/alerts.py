"""Measures the alerts: ``python -m benchmarks.alerts [--clean 20] [--steps 1000] [--anomalies 110] [--page FILE]``.

Clean trainings of several kinds must raise none: any alert there is false. Then each kind of anomaly is put into short
trainings at a random step and, where it has one, at a random place; it is found when an alert comes at its step or
soon after, and named when the alert is about the node that it began at. The rules and their constants are those of the
preset ``monitor`` in both halves.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn, optim

import msprobe
from benchmarks.alert_trainings import RECIPES, Anomaly, Recipe, train

#: Steps of a training with an anomaly, the first and last step at which it begins, and how soon it must be told.
STEPS, EARLIEST, LATEST, SOON = 150, 60, 120, 10


class _AtModule(Anomaly):
    """Changes the output of one module from a step on, for ``lasts`` steps."""

    lasts = 1
    factor: float | None = None

    def __init__(self, model: nn.Module, step: int, chosen: random.Random) -> None:
        super().__init__(model, step, chosen)
        kinds = (nn.Linear, nn.LayerNorm, nn.Conv2d, nn.Embedding)
        called = [name for name, m in model.named_modules() if isinstance(m, kinds) and "experts" not in name]
        self.node = chosen.choice(called)
        model.get_submodule(self.node).register_forward_hook(self._change, prepend=True)

    def _change(self, module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor | None:
        if not self.step <= self.now < self.step + self.lasts:
            return None
        return self.changed(output)

    def changed(self, output: torch.Tensor) -> torch.Tensor:
        """Gives the wrong output."""
        raise NotImplementedError


class NanActivation(_AtModule):
    """One element of an output is NaN."""

    def changed(self, output: torch.Tensor) -> torch.Tensor:
        """Puts it there."""
        return output.index_fill(-1, torch.tensor([0]), torch.nan)


class InfActivation(_AtModule):
    """One column of an output is infinite."""

    def changed(self, output: torch.Tensor) -> torch.Tensor:
        """Puts it there."""
        return output.index_fill(-1, torch.tensor([0]), torch.inf)


class SpikeActivation(_AtModule):
    """An output is 100 times too large."""

    def changed(self, output: torch.Tensor) -> torch.Tensor:
        """Scales it."""
        return output * 100


class DeadActivation(_AtModule):
    """An output is all zero from here on."""

    lasts = STEPS

    def changed(self, output: torch.Tensor) -> torch.Tensor:
        """Zeroes it."""
        return output * 0


class _AtGradient(Anomaly):
    """Changes the gradient of one parameter, or of all, before it is clipped and consumed."""

    lasts = 1

    def __init__(self, model: nn.Module, step: int, chosen: random.Random) -> None:
        super().__init__(model, step, chosen)
        names = [n for n, p in model.named_parameters() if p.dim() > 1 and "experts" not in n]
        self.name = chosen.choice(names)
        self.node = self.name.rpartition(".")[0]

    def gradients(self) -> None:
        """Changes it when it is time."""
        gradient = self.model.get_parameter(self.name).grad
        if self.step <= self.now < self.step + self.lasts and gradient is not None:
            self.change(gradient)

    def change(self, gradient: torch.Tensor) -> None:
        """Writes into the gradient."""
        raise NotImplementedError


class NanGradient(_AtGradient):
    """One element of a gradient is NaN, as of an expert that got no tokens."""

    def change(self, gradient: torch.Tensor) -> None:
        """Puts it there."""
        gradient.view(-1)[0] = torch.nan


class SpikeGradient(_AtGradient):
    """A gradient is 10,000 times too large."""

    def change(self, gradient: torch.Tensor) -> None:
        """Scales it."""
        gradient.mul_(1e4)


class DeadGradient(_AtGradient):
    """A gradient is zero from here on."""

    lasts = STEPS

    def change(self, gradient: torch.Tensor) -> None:
        """Zeroes it."""
        gradient.zero_()


class VanishingGradient(Anomaly):
    """All gradients are 100,000 times too small from here on: a loss scaled down by mistake."""

    def gradients(self) -> None:
        """Scales them."""
        if self.now >= self.step:
            for parameter in self.model.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(1e-5)


class FlippedBit(_AtGradient):
    """A high bit of one weight flips: the element becomes huge."""

    def change(self, gradient: torch.Tensor) -> None:
        """Puts it into the weight."""
        with torch.no_grad():
            self.model.get_parameter(self.name).view(-1)[3] += 1e4


class LearningRate(Anomaly):
    """The learning rate is 300 times too large from here on."""

    rate = 1.0

    def begin(self, step: int, optimizer: optim.Optimizer) -> None:
        """Changes it when it is time."""
        super().begin(step, optimizer)
        self.rate = 300.0 if step >= self.step else 1.0


class BadBatch(Anomaly):
    """One batch is far out of range: inputs 200 times too large; of words, one repeated and labels at random."""

    def batch(self, inputs: torch.Tensor, target: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Changes it when it is time."""
        if self.now != self.step or not inputs.is_floating_point():
            return inputs, target
        return inputs * 200, target


KINDS: tuple[type[Anomaly], ...] = (
    NanActivation,
    InfActivation,
    SpikeActivation,
    DeadActivation,
    NanGradient,
    SpikeGradient,
    DeadGradient,
    VanishingGradient,
    FlippedBit,
    LearningRate,
    BadBatch,
)


@dataclass(slots=True)
class Trial:
    """One training: what was done to it, and what the alerts said."""

    recipe: str
    seed: int
    kind: str = ""
    step: int = -1
    node: str = ""
    alerts: tuple[dict[str, Any], ...] = ()

    @property
    def found(self) -> bool:
        """Whether an alert came in time."""
        return any(self.step <= alert["step"] <= self.step + SOON for alert in self.alerts)

    @property
    def named(self) -> bool:
        """Whether the first alert in time is about the node."""
        first = next((a for a in self.alerts if self.step <= a["step"] <= self.step + SOON), None)
        return first is not None and first["node"] == self.node

    @property
    def false(self) -> int:
        """How many alerts came before there was a reason."""
        return sum(self.step < 0 or alert["step"] < self.step for alert in self.alerts)


def clean(number: int, steps: int) -> Trial:
    """Trains without an anomaly."""
    return _trial(RECIPES[number % len(RECIPES)], 100 + number, steps, None)


def anomalous(number: int, on: int | None = None) -> Trial:
    """Trains with an anomaly: kinds in turn, recipe (but for ``on``), step and place at random."""
    kind = KINDS[number % len(KINDS)]
    recipe = RECIPES[on] if on is not None else random.Random(number).choice([r for r in RECIPES if _suits(kind, r)])
    return _trial(recipe, 1000 + number, STEPS, kind)


def _suits(kind: type[Anomaly], recipe: Recipe) -> bool:
    """Words are no numbers that could be too large; a scaler skips gradients that are NaN or leaves them alone."""
    if kind is BadBatch:
        return not recipe.name.startswith("language")
    return not (recipe.half and kind in (NanGradient, InfActivation, NanActivation))


def _trial(recipe: Recipe, seed: int, steps: int, kind: type[Anomaly] | None) -> Trial:
    at = random.Random(seed).randint(EARLIEST, LATEST) if kind is not None else -1
    with tempfile.TemporaryDirectory(prefix="alerts-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        until = at + SOON + 8 if kind is not None else steps  # a scaler's skips make the program's steps more
        anomaly = train(recipe, seed, steps, Path(folder), kind or Anomaly, at, until)
        events = msprobe.open_run(folder).rank(0).events
    broken = [event.message for event in events if event.kind == "error"]
    if broken:
        raise RuntimeError(f"{recipe.name}: {broken[0]}")
    alerts = tuple(dict(event.details) for event in events if event.kind == "alert")
    return Trial(recipe.name, seed, kind.__name__ if kind else "", at, anomaly.node, alerts)


def summary(trials: Sequence[Trial]) -> dict[str, Any]:
    """Counts false alerts, and what was found of each kind."""
    bad = [trial for trial in trials if trial.kind]
    kinds = {kind: [t for t in bad if t.kind == kind] for kind in dict.fromkeys(t.kind for t in bad)}
    return {
        "clean": sum(not t.kind for t in trials),
        "false": sum(t.false for t in trials if not t.kind),
        "false_before": sum(t.false for t in bad),
        "anomalies": len(bad),
        "found": sum(t.found for t in bad),
        "kinds": {kind: (len(ts), sum(t.found for t in ts), sum(t.named for t in ts)) for kind, ts in kinds.items()},
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Runs both halves and prints what came of each training."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.alerts", description=__doc__)
    parser.add_argument("--clean", type=int, default=20, help="clean trainings (%(default)s)")
    parser.add_argument("--steps", type=int, default=1000, help="steps of each (%(default)s)")
    parser.add_argument("--anomalies", type=int, default=110, help="trainings with an anomaly (%(default)s)")
    parser.add_argument("--json", type=Path, help="write every trial")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    trials: list[Trial] = []
    for trial in _trials(arguments.clean, arguments.steps, arguments.anomalies):
        trials.append(trial)
        state = ("found" if trial.found else "MISSED") if trial.kind else ("FALSE" if trial.false else "quiet")
        first = "; ".join(f"step {a['step']} {a['node']} {a['rule']}" for a in trial.alerts[:3])
        print(f"{state:7}{trial.recipe:36}{trial.kind:19}{trial.step:4} {trial.node:20} {first}", flush=True)
        if arguments.json:
            arguments.json.write_text(json.dumps([asdict(t) for t in trials]))
    print(json.dumps(summary(trials), indent=1))
    return 0


def _trials(num_clean: int, steps: int, anomalies: int) -> Iterator[Trial]:
    for number in range(anomalies):
        yield anomalous(number)
    for number in range(num_clean):
        yield clean(number, steps)


if __name__ == "__main__":
    sys.exit(main())
