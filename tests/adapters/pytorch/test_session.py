"""Steps, micro-steps, and what a recording leaves behind."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_pre_hooks
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

import msprobe
from msprobe.core.errors import RecordingError, RunError

X = torch.ones(2, 3)


def _hooks(model):
    return sum(
        len(module._forward_hooks) + len(module._forward_pre_hooks) + len(module._backward_hooks)
        for module in model.modules()
    ) + sum(len(parameter._backward_hooks or ()) for parameter in model.parameters())


def _model():
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 1))


def _optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def _steps(run):
    return sorted({row.step for row in run.rows})


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("calls_step", [True, False])
def test_a_step_is_counted_once(tmp_path, read, given, calls_step):
    model = _model()
    optimizer = _optimizer(model)
    with msprobe.record(model, tmp_path / "run", trace=False, optimizer=optimizer if given else None) as probe:
        for _ in range(3):
            optimizer.zero_grad()
            model(X).sum().backward()
            optimizer.step()
            if calls_step:
                probe.step()
    run = read(tmp_path / "run")
    assert _steps(run) == [0, 1, 2]
    assert [r.micro_step for r in run.rows if r.place == "|forward|input|0|0"] == [0, 0, 0]
    assert sum(r.place == "0|update|gradient|weight|0" for r in run.rows) == 3


@pytest.mark.parametrize("given", [True, False])
def test_a_validation_pass_before_the_call_of_step_counts_no_step(tmp_path, read, given):
    model = _model()
    optimizer = _optimizer(model)
    with msprobe.record(model, tmp_path / "run", trace=False, optimizer=optimizer if given else None) as probe:
        for _ in range(3):
            model(X).sum().backward()
            optimizer.step()
            with torch.no_grad():
                model(X)
            probe.step()
    updates = [r.step for r in read(tmp_path / "run").rows if r.place == "0|update|gradient|weight|0"]
    assert updates == [0, 1, 2]


def test_two_optimizers_of_one_model_make_one_step(tmp_path, read):
    model = _model()
    optimizers = [torch.optim.SGD(model[0].parameters(), 0.1), torch.optim.Adam(model[2].parameters(), 0.1)]
    with msprobe.record(model, tmp_path / "run", trace=False):
        for _ in range(3):
            model(X).sum().backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    run = read(tmp_path / "run")
    assert _steps(run) == [0, 1, 2]
    for step in range(3):
        assert {"0|update|gradient|weight|0", "2|update|gradient|weight|0"} <= set(run.places(step))


def test_the_optimizer_of_another_model_makes_no_step(tmp_path, read):
    model, other = _model(), _model()
    with msprobe.record(model, tmp_path / "run", trace=False):
        for _ in range(2):
            model(X).sum().backward()
            other(X).sum().backward()
            _optimizer(other).step()
    assert _steps(read(tmp_path / "run")) == [0]


@pytest.mark.parametrize("given", [True, False])
def test_no_hook_is_there_on_a_step_that_is_not_recorded(tmp_path, read, given):
    model = _model()
    optimizer = _optimizer(model)
    seen = []

    class Counts(nn.Module):
        def forward(self, x):
            seen.append(_hooks(model))
            return torch.tanh(x)

    model[1] = Counts()
    with msprobe.record(model, tmp_path / "run", steps="1,3", optimizer=optimizer if given else None, trace=False):
        for _ in range(5):
            optimizer.zero_grad()
            model(X).sum().backward()
            optimizer.step()
    assert [bool(count) for count in seen] == [False, True, False, True, False]
    run = read(tmp_path / "run")
    assert _steps(run) == [1, 3]
    assert run.places(1) == run.places(3)
    assert {"|forward|input|0|0", "|forward|output|0|0", "0|update|gradient|weight|0"} <= set(run.places(1))
    assert _hooks(model) == 0


@pytest.mark.parametrize("level", ["module", "op", "mix"])
def test_an_idle_probe_leaves_neither_hook_nor_mode(tmp_path, level):
    model = _model()
    optimizer = _optimizer(model)
    found = []

    def look(x):
        found.append((bool(_hooks(model)), len(_get_current_dispatch_mode_stack())))
        return torch.tanh(x)

    model[1].forward = look
    with msprobe.record(model, tmp_path / "run", steps="1", level=level, optimizer=optimizer):
        for _ in range(3):
            model(X).sum().backward()
            optimizer.step()
    assert found == [(False, 0), (True, 1), (False, 0)]


def test_start_step_and_every(tmp_path, read):
    model = _model()
    with msprobe.record(model, tmp_path / "run", start_step=10, every=4, trace=False) as probe:
        for _ in range(8):
            model(X)
            probe.step()
    assert _steps(read(tmp_path / "run")) == [12, 16]


def test_nothing_is_left_after_close(tmp_path):
    model = _model()
    x = X.clone().requires_grad_()
    step = torch.amp.GradScaler.step
    probe = msprobe.record(model, tmp_path / "run")
    model(x).sum().backward()
    probe.close()
    probe.close()
    probe.step()
    assert _hooks(model) == 0
    assert not x._backward_hooks
    assert torch.amp.GradScaler.step is step
    assert torch.utils._python_dispatch._len_torch_dispatch_stack() == 0
    assert not _global_optimizer_pre_hooks


def test_accumulated_passes_are_micro_steps(tmp_path, read):
    model = nn.Linear(3, 1, bias=False)
    optimizer = _optimizer(model)
    with msprobe.record(model, tmp_path / "run", what="tensors", trace=False):
        for micro_step in range(3):
            (model(X * (micro_step + 1)).sum()).backward()
        optimizer.step()
    run = read(tmp_path / "run")
    parts = [run.at("|backward|gradient|weight|0", micro_step=i).tensor for i in range(3)]
    np.testing.assert_array_equal(parts, [[[2, 2, 2]], [[4, 4, 4]], [[6, 6, 6]]])
    np.testing.assert_array_equal(run.at("|update|gradient|weight|0").tensor, [[12, 12, 12]])


def test_gradients_belong_to_the_pass_of_their_forward(tmp_path, read):
    model = nn.Linear(3, 1, bias=False)
    with msprobe.record(model, tmp_path / "run", what="tensors", trace=False) as probe:
        losses = [model(X * scale).sum() for scale in (1.0, 2.0)]
        for loss in reversed(losses):
            loss.backward()
        probe.step()
    run = read(tmp_path / "run")
    for micro_step, expected in enumerate((2, 4)):
        assert run.at("|backward|input|0|0", micro_step=micro_step).tensor.sum() == 2
        assert (run.at("|backward|gradient|weight|0", micro_step=micro_step).tensor == expected).all()


def test_models_without_a_root_call_have_micro_steps_too(tmp_path, read):
    model = nn.ModuleDict({"encoder": nn.Linear(3, 3), "decoder": nn.Linear(3, 1)})
    with msprobe.record(model, tmp_path / "run", trace=False) as probe:
        for _ in range(2):
            model["decoder"](model["encoder"](X))
        probe.step()
    run = read(tmp_path / "run")
    assert [r.micro_step for r in run.rows if "forward|output" in r.place] == [0, 0, 1, 1]


def test_several_models_have_names(tmp_path, read):
    actor, critic = _model(), nn.Linear(3, 1)
    with msprobe.record({"actor": actor, "critic": critic}, tmp_path / "run", trace=False) as probe:
        actor(X)
        critic(X)
        probe.step()
    assert {"actor.0|forward|output|0|0", "critic|forward|output|0|0"} <= set(read(tmp_path / "run").places())


class Failing(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.fails = nn.Linear(3, 3), True

    def forward(self, x):
        x = self.inner(x)
        if self.fails:
            raise ArithmeticError("broken batch")
        return x


def test_an_exception_in_forward_unwinds_the_calls(tmp_path, read):
    failing = Failing()
    model = nn.Sequential(failing, nn.Linear(3, 1))
    with msprobe.record(model, tmp_path / "run", trace=False) as probe:
        with pytest.raises(ArithmeticError, match="broken batch"):
            model(X)
        failing.fails = False
        msprobe.save(X, "after")
        model(X)
        probe.step()
    run = read(tmp_path / "run")
    assert [(e.kind, e.node) for e in run.events] == [("exception", "0")]
    assert "/after|forward|saved|0|0" in run.places()
    assert run.at("1|forward|output|0|0", micro_step=1)


def test_a_call_inside_an_except_block_is_no_failure(tmp_path, read):
    model = _model()
    with msprobe.record(model, tmp_path / "run", trace=False) as probe:
        try:
            raise KeyError("x")
        except KeyError:
            model(X)
        probe.step()
    run = read(tmp_path / "run")
    assert run.at("|forward|output|0|0")
    assert run.events == []


def test_keyboard_interrupt_leaves_no_stale_calls(tmp_path, read):
    model = _model()
    model[1].forward = lambda x: (_ for _ in ()).throw(KeyboardInterrupt)
    with msprobe.record(model, tmp_path / "run", trace=False) as probe:
        with pytest.raises(KeyboardInterrupt):
            model(X)
        del model[1].forward
        model(X)
        probe.step()
    run = read(tmp_path / "run")
    assert run.at("2|forward|output|0|0", micro_step=1)
    assert run.events == []


def test_leaving_by_an_exception_keeps_what_was_recorded(tmp_path, read):
    model = _model()

    def train():
        with msprobe.record(model, tmp_path / "run", trace=False):
            model(X)
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        train()
    assert read(tmp_path / "run").at("|forward|output|0|0")
    assert _hooks(model) == 0


def test_scaler_skips_are_events_and_steps(tmp_path, read):
    model = _model()
    optimizer = _optimizer(model)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with msprobe.record(model, tmp_path / "run", trace=False) as probe:
        for step in range(4):
            optimizer.zero_grad()
            scaler.scale(model(X).sum() * (float("inf") if step == 1 else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
            probe.step()
    run = read(tmp_path / "run")
    assert _steps(run) == [0, 1, 2, 3]
    assert [(e.kind, e.step) for e in run.events] == [("scaler_skip", 1)]


def test_saved_tensors_and_their_gradients(tmp_path, read):
    class Router(nn.Module):
        def forward(self, x):
            scores = x * 3
            msprobe.save(scores, "scores")
            return scores.sum()

    x = X.clone().requires_grad_()
    model = nn.Sequential(Router())
    msprobe.save(x, "nothing records yet")
    with msprobe.record(model, tmp_path / "run", what="tensors", trace=False) as probe:
        model(x).backward()
        probe.step()
    run = read(tmp_path / "run")
    assert (run.at("0/scores|forward|saved|0|0").tensor == 3).all()
    assert (run.at("0/scores|backward|saved|0|0").tensor == 1).all()
    assert run.nodes["0/scores"].parent == "0"


def test_save_gives_back_what_it_got():
    from msprobe.adapters.pytorch.saving import save

    value = {"a": X}
    assert save(value, "name") is value


def test_a_failing_hook_is_reported_once_and_training_goes_on(tmp_path, read):
    class Odd(dict):
        def items(self):
            raise ValueError("odd")

    class Gives(nn.Module):
        def forward(self, x):
            return Odd(a=x)

    model = Gives()
    with msprobe.record(model, tmp_path / "run", trace=False) as probe:
        for _ in range(3):
            assert isinstance(model(X), Odd)
            probe.step()
    run = read(tmp_path / "run")
    assert [e.kind for e in run.events] == ["error"]
    assert "odd" in run.events[0].message
    assert run.at("|forward|input|0|0", step=2)


def test_a_path_that_is_no_run_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path):
        with pytest.raises(RunError, match="give a new or empty directory"):
            msprobe.record(_model(), path)


def test_an_optimizer_that_is_none_is_refused(tmp_path):
    with pytest.raises(RecordingError, match=r"call probe.step\(\)"):
        msprobe.record(_model(), tmp_path / "run", optimizer=object())
    assert torch.utils._python_dispatch._len_torch_dispatch_stack() == 0


def test_a_run_with_nothing_recorded_opens(tmp_path, read):
    with msprobe.record(_model(), tmp_path / "run", steps="5-"):
        pass
    assert read(tmp_path / "run").rows == []
