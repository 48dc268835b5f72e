"""Programs recorded with no edit to them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from msprobe.adapters.pytorch.launch import VARIABLE, launch, read_instructions
from msprobe.core.errors import RecordingError
from msprobe.core.options import RecordOptions

TRAIN = """\
import os, sys, torch
from torch import nn
torch.manual_seed(0)
model, critic, loss = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), nn.Linear(2, 1), nn.MSELoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    out = model(input=torch.ones(5, 3))
    (loss(out, torch.zeros(5, 2)) + critic(out).mean()).backward()
    optimizer.step()
print("arguments", sys.argv[1:], out.sum().item().hex())
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "train.py"
    path.write_text(TRAIN)
    return path


def _ending(program: Path, code: str) -> Path:
    program.write_text(TRAIN + code)
    return program


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def _steps(run) -> list[int]:
    return sorted({row.step for row in run.rows})


def test_a_program_is_recorded_without_an_edit(program, tmp_path, read, capfd):
    command = [sys.executable, str(program), "--lr", "3"]
    assert launch(command, RecordOptions(), tmp_path / "run", perturb=True) == 0
    said = capfd.readouterr()
    assert said.out.splitlines()[0].startswith("arguments ['--lr', '3']")
    assert said.err == ""
    run, twin = read(tmp_path / "run"), read(tmp_path / "run-perturbed")
    assert _steps(run) == _steps(twin) == [0, 1, 2]
    assert {"|forward|input|input|0", "0|forward|output|0|0", "Linear|forward|output|0|0"} <= set(run.places(0))
    assert "0|update|gradient|weight|0" in run.places(2)
    assert not any(path.startswith("MSELoss") for path in run.nodes)
    assert (run.run.header.perturbed, twin.run.header.perturbed) == (False, True)
    assert list(run.run.header.arguments[1:]) == ["--lr", "3"]
    norms = [r.at("0|forward|output|0|0").values["norm"] for r in (run, twin)]
    assert 0 < abs(norms[0] - norms[1]) < 1e-5 * norms[0]


@pytest.mark.long
def test_a_recorded_program_computes_the_same_bits(program, tmp_path, capfd):
    plain = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert launch([sys.executable, str(program)], RecordOptions(), tmp_path / "run") == 0
    assert capfd.readouterr().out == plain.stdout


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        pytest.param("os._exit(3)", 3),
        pytest.param("sys.exit(5)", 5, marks=pytest.mark.long),
        pytest.param("raise ValueError('x')", 1, marks=pytest.mark.long),
    ],
)
def test_the_exit_code_is_the_programs_own(program, tmp_path, read, ending, code):
    assert launch([sys.executable, str(_ending(program, ending))], RecordOptions(), tmp_path / "run") == code
    assert _steps(read(tmp_path / "run")) == [0, 1, 2]


@pytest.mark.long
def test_a_killed_program_keeps_its_signal(program, tmp_path, read):
    ending = "import signal, time; time.sleep(0.5); os.kill(os.getpid(), signal.SIGKILL)"
    assert launch([sys.executable, str(_ending(program, ending))], RecordOptions(), tmp_path / "run") == 137
    assert _steps(read(tmp_path / "run"))[:2] == [0, 1]


def test_a_program_without_a_model_is_told_of(tmp_path, capfd):
    assert launch([sys.executable, "-c", "print('hi')"], RecordOptions(), tmp_path / "run") == 0
    assert "nothing was recorded" in capfd.readouterr().err


def test_a_missing_program_is_an_error(tmp_path):
    with pytest.raises(RecordingError, match="cannot run 'no-such-program'"):
        launch(["no-such-program"], RecordOptions(), tmp_path / "run")


def test_a_sitecustomize_that_was_there_still_runs(program, tmp_path, monkeypatch, capfd):
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("print('customized')\n")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    assert launch([sys.executable, str(program)], RecordOptions(), tmp_path / "run") == 0
    assert capfd.readouterr().out.splitlines()[0] == "customized"
    assert (tmp_path / "run" / "run.json").is_file()


def test_options_reach_the_program_unchanged(tmp_path, monkeypatch):
    options = RecordOptions.create(
        level="L1", what="statistics,tensors", what_for={"*.mlp": "rows"}, steps="0,10-12,100-", ranks="1-3", every=2
    )
    seen = tmp_path / "seen"
    code = f"import os, pathlib; pathlib.Path({str(seen)!r}).write_text(os.environ[{VARIABLE!r}])"
    launch([sys.executable, "-c", code], options, tmp_path / "run")
    assert read_instructions({VARIABLE: seen.read_text()}) == (options, tmp_path / "run", None)
    assert read_instructions(os.environ) is None


@pytest.mark.long
def test_torchrun_records_every_rank(tmp_path, read):
    program = tmp_path / "train.py"
    program.write_text(
        "import torch.distributed as dist\ndist_init = dist.init_process_group('gloo')\n"
        + TRAIN.replace("optimizer =", "model = nn.parallel.DistributedDataParallel(model)\noptimizer =")
        + "dist.destroy_process_group()\n"
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(program)]
    assert launch(command, RecordOptions(), tmp_path / "run") == 0
    for rank in range(2):
        run = read(tmp_path / "run", rank)
        assert run.rank.info.world_size == 2
        assert "module.0|forward|output|0|0" in run.places(1)
