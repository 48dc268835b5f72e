"""A monitored training: alerts while it runs, a closer look after one, control, and no bit changed."""

import json
import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import msprobe
from msprobe.cli import main
from msprobe.core.errors import AlertError


def _model() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 32), nn.LayerNorm(32), nn.Linear(32, 4))


def _train(path, steps=60, wrong=None, **options):
    """Trains under the monitor; ``wrong(step, model)`` may do something before the optimizer's step."""
    model = _model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with msprobe.monitor(model, optimizer, out=path, **options) as probe:
        for step in range(steps):
            loss = model(torch.randn(8, 6)).square().mean()
            loss.backward()
            if wrong is not None:
                wrong(step, model)
            optimizer.step()
            optimizer.zero_grad()
            probe.log(loss=loss)
    return model


def _nan(step, model):
    if step == 40:
        model[2].weight.grad[3, 3] = math.nan


def _alerts(run):
    return [event for event in run.events if event.kind == "alert"]


def test_a_quiet_training_has_vital_signs_and_no_alerts(tmp_path, read):
    _train(tmp_path / "run")
    run = read(tmp_path / "run")
    places = run.places(5)
    expected = {"0|forward|output|0|0", "0|backward|input|0|0", "2|backward|gradient|weight|0"}
    expected |= {f"2|update|{what}|0" for what in ("gradient|weight", "state|weight.exp_avg", "parameter|weight")}
    expected |= {f"2|update|derived|weight.{what}|0" for what in ("update", "ratio", "agreement")}
    assert expected <= set(places)
    assert not [place for place in places if "forward|parameter" in place or "forward|input" in place]
    assert run.kinds() == []


def test_an_alert_names_step_rank_and_place_and_has_the_tensors_saved_on_the_next_step(tmp_path, read, capsys):
    heard: list[Any] = []
    _train(tmp_path / "run", wrong=_nan, dump_on_alert=1, on_alert=heard.append)
    run = read(tmp_path / "run")
    [alert] = _alerts(run)
    assert {name: alert.details[name] for name in ("rule", "step", "rank", "node", "direction", "argument")} == {
        "rule": "nan", "step": 40, "rank": 0, "node": "2", "direction": "update", "argument": "weight",
    }  # fmt: skip
    assert [one.node for one in heard] == ["2"]
    assert "msprobe alert: step 40, rank 0: 2 update gradient weight" in capsys.readouterr().err
    saved = {(r.step, r.place.partition("|")[0]) for r in run.rows if r.values["tensor"] >= 0}
    [step] = {step for step, _ in saved}
    assert {node for _, node in saved} == {"2", "3"}  # what enters 3 is what leaves 2
    assert 41 <= step <= 43
    assert np.isnan(run.at("2|update|state|weight.exp_avg|0", step).tensor).any()
    assert "2|forward|input|0|0" in run.places(step)
    assert "2|forward|input|0|0" not in run.places(step + 1)


def test_it_stops_a_training_only_when_asked(tmp_path):
    with pytest.raises(AlertError, match="step 40"):
        _train(tmp_path / "run", wrong=_nan, stop_on_alert=True)


def test_a_rule_that_cannot_be_found_is_an_event_and_the_recording_goes_on(tmp_path, read):
    _train(tmp_path / "run", steps=2, alerts=["nan", "no.such:rule"])
    run = read(tmp_path / "run")
    assert "no.such:rule" in run.events[0].message
    assert run.places(1)


@pytest.mark.parametrize("everything", [{}, {"inputs": True, "parameters": True, "buffers": True, "trace": True}])
def test_everything_on_changes_no_bit(tmp_path, everything):
    plain = _model()
    optimizer = torch.optim.AdamW(plain.parameters(), lr=1e-3)
    for _ in range(6):
        plain(torch.randn(8, 6)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    watched = _train(tmp_path / "run", steps=6, dump_on_alert=3, **everything)
    for one, other in zip(plain.parameters(), watched.parameters(), strict=True):
        assert torch.equal(one, other)


def test_nothing_is_recorded_and_no_sample_taken_on_skipped_steps(tmp_path, read):
    taken = []

    def look(step, model):
        taken.append(sum(len(m._forward_hooks) for m in model.modules()))

    _train(tmp_path / "run", steps=12, wrong=look, every=5, window=2)
    assert sorted({row.step for row in read(tmp_path / "run").rows}) == [0, 1, 5, 6, 10, 11]
    assert [bool(hooks) for hooks in taken] == [step % 5 < 2 for step in range(12)]


_PROGRAM = """
import sys, time
import torch
import msprobe

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
with msprobe.monitor(model, optimizer, out=sys.argv[1]) as probe:
    for step in range(3000):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, flush=True)
        if not sys.stdin.readline():
            break
"""


class Program:
    """A training in another process that takes a step when it is told to."""

    def __init__(self, out):
        words = [sys.executable, "-c", _PROGRAM, str(out)]
        popen: Any = subprocess.Popen
        self.process = popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def steps(self, count):
        for _ in range(count):
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
            self.process.stdout.readline()

    def end(self):
        with self.process:
            self.process.stdin.close()
        assert self.process.returncode == 0


def test_ctl_stops_starts_and_changes_a_training_that_runs(tmp_path, read, capsys):
    out = tmp_path / "run"
    program = Program(out)
    program.steps(5)
    assert main(["ctl", str(out), "stop", "--at", "10"]) == 0
    assert capsys.readouterr().out == "from step 10 on (the training is at step 6)\n"
    program.steps(15)
    assert main(["ctl", str(out), "set", "evry=2"]) == 2
    assert "every" in capsys.readouterr().err
    assert main(["ctl", str(out), "set", "what=sketch"]) == 2
    assert "no columns for sketch" in capsys.readouterr().err
    assert main(["ctl", str(out), "set", "every=5", "targets=0", "inputs=true"]) == 0
    assert main(["ctl", str(out), "start", "--at", "30"]) == 0
    program.steps(20)
    program.end()
    run = read(out)
    assert sorted({row.step for row in run.rows}) == [*range(10), 30, 35, 40]
    assert {row.place.partition("|")[0] for row in run.rows if row.step == 30} == {"0"}
    assert "0|forward|input|0|0" in run.places(30)
    assert main(["events", str(out), "--kind", "control"]) == 0
    assert "change 1 applies from step 10 on: stopped" in capsys.readouterr().out


def test_events_follow_a_run_and_come_as_json(tmp_path, capsys):
    _train(tmp_path / "run", wrong=_nan)
    assert main(["events", str(tmp_path / "run"), "--follow", "--seconds", "0"]) == 0
    assert "alert: step 40, rank 0: 2 update gradient weight" in capsys.readouterr().out
    assert main(["events", str(tmp_path / "run"), "--json", "--kind", "alert"]) == 0
    assert json.loads(capsys.readouterr().out)["details"]["node"] == "2"
    assert main(["events", str(tmp_path / "nothing")]) == 2
