"""The contract that every adapter passes; call ``check_adapter`` in your adapter's tests."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.options import RecordOptions
from msprobe.core.records import WHAT
from msprobe.core.run.reader import open_run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.protocols import Adapter

_STEPS = 3


@dataclass(frozen=True, slots=True)
class Trial:
    """A model in training, for ``check_adapter``: always the same one, bit for bit, however often it is made."""

    model: Any
    #: Runs one forward, backward and update, and gives all that it computed: loss, gradients, weights.
    step: Callable[[], Sequence[NDArray[Any]]]
    #: Counts whatever is hooked into the model at the moment.
    count_hooks: Callable[[], int]
    optimizer: Any = None


def check_adapter(adapter: Adapter, make_trial: Callable[[], Trial], *, levels: Sequence[str] = ("module",)) -> None:
    """Checks that an adapter keeps the laws of recording, at each level that it has.

    It owns its models and no others; what it records reads back, forward and backward; results are the same with and
    without it, bit for bit; steps that are not recorded cost no hook; a run that cannot be written stops no training.

    Raises:
        AssertionError: A law is broken; the message says which.
    """
    check_ownership(adapter, make_trial())
    for level in levels:
        check_reads_back(adapter, make_trial(), level=level)
        check_bit_neutral(adapter, make_trial, level=level)
        check_off_costs_nothing(adapter, make_trial(), level=level)
        check_never_raises(adapter, make_trial, level=level)


def check_ownership(adapter: Adapter, trial: Trial) -> None:
    """Checks that the adapter knows its own models from other objects."""
    assert adapter.owns(trial.model), f"{adapter.name} does not own its own model"
    for stranger in (object(), None, "model", {}):
        assert not adapter.owns(stranger), f"{adapter.name} claims {stranger!r}"


def check_reads_back(adapter: Adapter, trial: Trial, *, level: str = "module") -> None:
    """Checks that a recorded run opens and holds each step, both directions, and no error."""
    with _folder() as folder:
        _train(adapter, trial, folder / "run", RecordOptions.create(level=level))
        run = open_run(folder / "run")
        (rank,) = run.ranks
        records = run.rank(rank).records
        # Operators that run after the last step belong to one more, which does not end.
        assert set(range(_STEPS)) <= set(records["step"]), f"{adapter.name} lost steps of the run"
        directions = {run.rank(rank).sites.site(int(site)).direction.value for site in set(records["site"])}
        assert {"forward", "backward"} <= directions, f"{adapter.name} recorded only {sorted(directions)}"
        errors = [event.message for event in run.rank(rank).events if event.kind == "error"]
        assert not errors, f"{adapter.name} could not record: {errors[0]}"


def check_bit_neutral(adapter: Adapter, make_trial: Callable[[], Trial], *, level: str = "module") -> None:
    """Checks that recording everything changes no bit of what the model computes."""
    plain = _train_plainly(make_trial())
    with _folder() as folder:
        options = RecordOptions.create(level=level, what=WHAT, stacks=True)
        watched = _train(adapter, make_trial(), folder / "run", options)
    _assert_same_bits(watched, plain, f"{adapter.name} changes what the model computes at level {level}")


def check_off_costs_nothing(adapter: Adapter, trial: Trial, *, level: str = "module") -> None:
    """Checks that no hook hangs in the model on a step that is not recorded, nor after the end."""
    before = trial.count_hooks()
    with _folder() as folder:
        options = RecordOptions.create(level=level, steps="1")
        probe = adapter.record(trial.model, folder / "run", options, optimizer=trial.optimizer)
        with probe:
            for step in range(_STEPS):
                if step != 1:
                    hooks = trial.count_hooks() - before
                    assert not hooks, f"{adapter.name} leaves {hooks} hooks in step {step}, which is not recorded"
                trial.step()
                _end_step(probe, trial)
        run = open_run(folder / "run")
        assert set(run.rank(0).records["step"]) == {1}, f"{adapter.name} records steps that were not asked for"
    assert trial.count_hooks() == before, f"{adapter.name} leaves hooks behind after close"


def check_never_raises(adapter: Adapter, make_trial: Callable[[], Trial], *, level: str = "module") -> None:
    """Checks that training goes on unchanged when the run directory is taken away in the middle."""
    plain = _train_plainly(make_trial())
    trial = make_trial()
    with _folder() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = folder / "run"
        watched = []
        options = RecordOptions.create(level=level, what=WHAT)
        with adapter.record(trial.model, path, options, optimizer=trial.optimizer) as probe:
            for step in range(_STEPS):
                if step == 1:
                    _take_away(path)
                watched.append(trial.step())
                _end_step(probe, trial)
    _assert_same_bits(watched, plain, f"{adapter.name} changes results when the run cannot be written")


def _take_away(path: Path) -> None:
    """Puts a file where a directory is that a writer may be writing into at this very moment."""
    aside = path.with_name("taken away")
    path.rename(aside)
    path.write_text("in the way")
    shutil.rmtree(aside, ignore_errors=True)


def _train_plainly(trial: Trial) -> list[Sequence[NDArray[Any]]]:
    return [trial.step() for _ in range(_STEPS)]


def _train(adapter: Adapter, trial: Trial, path: Path, options: RecordOptions) -> list[Sequence[NDArray[Any]]]:
    results = []
    with adapter.record(trial.model, path, options, optimizer=trial.optimizer) as probe:
        for _ in range(_STEPS):
            results.append(trial.step())
            _end_step(probe, trial)
    return results


def _end_step(probe: Any, trial: Trial) -> None:
    """Ends the step, where no optimizer does it."""
    if trial.optimizer is None:
        probe.step()


def _assert_same_bits(
    watched: Sequence[Sequence[NDArray[Any]]], plain: Sequence[Sequence[NDArray[Any]]], complaint: str
) -> None:
    for step, (ours, theirs) in enumerate(zip(watched, plain, strict=True)):
        for place, (mine, yours) in enumerate(zip(ours, theirs, strict=True)):
            same = np.asarray(mine).tobytes() == np.asarray(yours).tobytes()
            assert same, f"{complaint}: result {place} of step {step} differs"


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="msprobe-", ignore_cleanup_errors=True) as name:
        yield Path(name)
