"""A recording that holds less than was asked for says so, and keeps the program's exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe.cli import main

PROGRAM = """\
import torch
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
"""


def _record(tmp_path: Path, *options: str, program: str = PROGRAM) -> int:
    (tmp_path / "train.py").write_text(program)
    return main(["record", *options, "--out", str(tmp_path / "run"), "--", str(tmp_path / "train.py")])


def test_a_pattern_that_fits_nothing_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert _record(tmp_path, "--targets", "Linear,*.mlp,0") == 0
    assert capfd.readouterr().err.splitlines() == [
        "msprobe: warning: --targets '*.mlp' fits no recorded node's path or class."
    ]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--targets", "*.mlp"), "--targets"),
        pytest.param(("--steps", "7-", "--exclude", "x"), "--exclude, --steps", marks=pytest.mark.long),
    ],
)
def test_a_run_without_a_record_is_told_of(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], options: tuple[str, ...], named: str
) -> None:
    assert _record(tmp_path, *options) == 0
    shown = capfd.readouterr().err
    assert shown == (
        f"msprobe: warning: {tmp_path / 'run'} holds no record: nothing that the program computed fits {named}.\n"
    )


def test_an_interrupted_program_is_told_of_and_keeps_its_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    # Where the tests run in the background of a shell, SIGINT is ignored from the start.
    handled = "import os, signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    assert _record(tmp_path, program=f"{handled}; os.kill(os.getpid(), signal.SIGINT)") == 130
    assert "ended by signal 2; it may not have come to its first model" in capfd.readouterr().err
