"""What an optimizer's step leaves is recorded as it is: state, parameters, updates; and the numbers of the step."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import msprobe
from msprobe.adapters.pytorch.samples import SAMPLE, sample, stride

WATCH: Any = {"optimizer_state": True, "updated_parameters": True, "updates": True, "scalars": True, "trace": False}
X = torch.linspace(-1, 1, 24).reshape(8, 3)


def _model() -> Any:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def _train(path, optimizer_class, steps=3, limit=math.inf, model=None, **settings):
    """Trains; gives the model and, for each step, gradients, parameters before and after, and the state after."""
    model = model or _model()
    optimizer = optimizer_class(model.parameters(), **settings)
    weight = model[0].weight
    seen = []
    with msprobe.record(model, path, optimizer=optimizer, what="statistics,tensors", **WATCH) as probe:
        for _ in range(steps):
            loss = model(X).square().sum()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
            moment = optimizer.state[weight].get("exp_avg")
            was = (weight.grad.clone(), weight.detach().clone(), None if moment is None else moment.clone())
            optimizer.step()
            optimizer.zero_grad()
            probe.log(loss=loss)
            state = {name: torch.as_tensor(value).clone() for name, value in optimizer.state[weight].items()}
            seen.append((*was, weight.detach().clone(), state, float(loss.detach())))
    return seen


def test_state_and_parameters_are_those_after_the_step(tmp_path, read):
    seen = _train(tmp_path / "run", torch.optim.AdamW, lr=0.1)
    run = read(tmp_path / "run")
    for step, (_, _, _, after, state, _) in enumerate(seen):
        np.testing.assert_array_equal(run.at("0|update|parameter|weight|0", step).tensor, after.numpy())
        for name in ("exp_avg", "exp_avg_sq"):
            np.testing.assert_array_equal(run.at(f"0|update|state|weight.{name}|0", step).tensor, state[name].numpy())


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_an_update_is_the_true_one_whatever_the_optimizer(tmp_path, read, optimizer):
    seen = _train(tmp_path / "run", optimizer, lr=0.1, weight_decay=0.1)
    run = read(tmp_path / "run")
    for step, (_, before, _, after, _, _) in enumerate(seen):
        update = run.at("0|update|derived|weight.update|0", step)
        np.testing.assert_allclose(update.tensor, (after - before).flatten().numpy(), rtol=1e-6)
        ratio = run.at("0|update|derived|weight.ratio|0", step).values["norm"]
        assert ratio == pytest.approx(float((after - before).norm() / before.norm()), rel=1e-5)


def test_agreement_of_gradient_and_momentum(tmp_path, read):
    seen = _train(tmp_path / "run", torch.optim.Adam, lr=0.1)
    run = read(tmp_path / "run")
    assert not [place for place in run.places(0) if "agreement" in place]  # there is no momentum yet
    for step in (1, 2):
        gradient, _, moment, *_ = seen[step]
        expected = float((gradient.sign() * moment.sign()).mean())
        assert run.at("0|update|derived|weight.agreement|0", step).values["mean"] == pytest.approx(expected)


def test_scalars_have_a_point_for_each_step_on_one_axis(tmp_path, read):
    seen = _train(tmp_path / "run", torch.optim.Adam, lr=0.1, limit=0.25)
    facts = [f for f in read(tmp_path / "run").rank.facts if f.kind == "scalar" and f.node == -1]
    found: Any = {}
    for fact in facts:
        found.setdefault(fact.name, {})[fact.step] = fact.value
    assert found["loss"] == {step: pytest.approx(values[-1]) for step, values in enumerate(seen)}
    assert found["lr"] == dict.fromkeys(range(3), 0.1)
    assert found["optimizer_step"] == {0: 1, 1: 2, 2: 3}
    for step in range(3):
        assert found["grad_norm"][step] > 0.25
        assert found["grad_norm_recomputed"][step] == pytest.approx(0.25, rel=1e-4)  # after clipping


def test_tied_weights_count_once_in_the_recomputed_norm(tmp_path, read):
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    model[1].weight = model[0].weight
    _train(tmp_path / "run", torch.optim.SGD, steps=1, model=model, lr=0.1)
    facts = {f.name: f.value for f in read(tmp_path / "run").rank.facts if f.kind == "scalar" and f.node == -1}
    assert facts["grad_norm_recomputed"] == pytest.approx(facts["grad_norm"], rel=1e-5)


def test_a_scalar_that_is_none_is_an_event_and_no_exception(tmp_path, read):
    model = _model()
    with msprobe.record(model, tmp_path / "run", **WATCH) as probe:
        model(X)
        probe.log(loss=torch.ones(2), other="text")
        probe.log(nan=math.nan, inf=torch.tensor(-math.inf))
    run = read(tmp_path / "run")
    assert sum("is no number" in event.message for event in run.events) == 2
    facts = {f.name: f.value for f in run.rank.facts if f.kind == "scalar" and f.node == -1}
    assert math.isnan(facts["nan"])
    assert facts["inf"] == -math.inf


def test_clipping_is_let_go_of(tmp_path):
    original = torch.nn.utils.clip_grad._clip_grads_with_norm_
    probe = msprobe.record(_model(), tmp_path / "run", **WATCH)
    assert torch.nn.utils.clip_grad._clip_grads_with_norm_ is not original
    probe.close()
    assert torch.nn.utils.clip_grad._clip_grads_with_norm_ is original


def test_a_sample_estimates_the_norm_of_the_whole_and_sees_all_columns():
    torch.manual_seed(0)
    whole = torch.randn(2048, 1024)
    kept: Any = sample(whole)
    assert 0.9 * SAMPLE <= kept.numel() <= 2 * SAMPLE
    estimate = float(kept.norm()) * math.sqrt(whole.numel() / kept.numel())
    assert estimate == pytest.approx(float(whole.norm()), rel=0.03)
    step = stride(whole.numel(), 1024)
    assert len({index % 1024 for index in range(0, whole.numel(), step)}) == 1024


def test_a_sample_of_a_transposed_or_small_tensor_needs_no_order():
    whole = torch.arange(6.0).reshape(2, 3).t()
    kept: Any = sample(whole)
    assert sorted(kept.tolist()) == [0, 1, 2, 3, 4, 5]
    assert sample(torch.empty(0)) is None
