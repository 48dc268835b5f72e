"""Rules see columns of a step; one cause is one alert; what is normal, or meant, is none."""

import math
from typing import Any

import numpy as np
import pytest

from msprobe.core.alerts.history import MOST_SITES
from msprobe.core.alerts.watcher import Watcher
from msprobe.core.errors import ConfigError
from msprobe.core.options import RecordOptions
from msprobe.core.presets import ALERTS
from msprobe.core.records import HAS, STATISTICS
from msprobe.core.run.batch import Batch, Fact, SiteRow
from msprobe.core.sites import Direction, Form, Node, NodeKind, Role
from msprobe.plugins import plugin_table

SITES: Any = (
    ("first", Direction.FORWARD, Role.OUTPUT, "0"),
    ("last", Direction.FORWARD, Role.OUTPUT, "0"),
    ("last", Direction.BACKWARD, Role.GRADIENT, "weight"),
    ("first", Direction.UPDATE, Role.GRADIENT, "weight"),
    ("first", Direction.UPDATE, Role.DERIVED, "weight.update"),
    ("first", Direction.UPDATE, Role.DERIVED, "weight.ratio"),
    ("first", Direction.UPDATE, Role.PARAMETER, "weight"),
)
SIZE = 400


class Training:
    """Hands batches of made-up tensors to a watcher, one for each step."""

    def __init__(self, **options: Any) -> None:
        names = options.pop("alerts", ALERTS)
        rules = [plugin_table().find("alerts", n).target if isinstance(n, str) and ":" not in n else n for n in names]
        self.watcher = Watcher(RecordOptions.create(alerts=rules, **options), rank=3)
        self.draw = np.random.default_rng(0)
        self.step = 0
        self.seq = 0

    def tensors(self) -> list[np.ndarray]:
        return [self.draw.normal(size=SIZE) * (0.01 if place[2] is Role.DERIVED else 1) for place in SITES]

    def run(self, change=None, steps: int = 1, scalars=None, facts=()):
        """Runs steps; ``change(tensors)`` alters what they hold. Gives the alerts."""
        events = []
        for _ in range(steps):
            tensors = self.tensors()
            if change is not None:
                change(tensors)
            events += self.watcher.take(self._batch(tensors, scalars or {}, facts))
            self.step += 1
        return [event for event in events if event.kind == "alert"]

    def _batch(self, tensors, scalars, facts):
        batch = Batch(self.step)
        if not self.step:
            names = list(dict.fromkeys(place[0] for place in SITES))
            batch.nodes = [Node(name, NodeKind.MODULE, "Linear", "") for name in names]
            batch.sites = [SiteRow(names.index(p[0]), p[1], p[2], p[3], 0) for p in SITES]
            batch.forms = [Form("fp32", (SIZE,))]
        rows = [_measured(tensor) for tensor in tensors]
        batch.records = {name: np.array([row[name] for row in rows]) for name in STATISTICS}
        count = len(rows)
        batch.records |= {"seq": np.arange(self.seq, self.seq + count), "site": np.arange(count)}
        batch.records |= {name: np.zeros(count, np.int64) for name in ("micro_step", "form", "status")}
        batch.records["has"] = np.full(count, HAS["statistics"], np.uint8)
        self.seq += count
        batch.facts = [Fact(self.step, 0, -1, "scalar", name, value) for name, value in scalars.items()]
        batch.facts += [Fact(self.step, *fact) for fact in facts]
        return batch


def _measured(x):
    finite = x[np.isfinite(x)]
    return {
        "min": finite.min(),
        "max": finite.max(),
        "mean": finite.mean(),
        "mean_abs": np.abs(finite).mean(),
        "m2": finite.var() * len(finite),
        "norm": np.linalg.norm(finite),
        "nan": np.isnan(x).sum(),
        "pos_inf": np.isposinf(x).sum(),
        "neg_inf": np.isneginf(x).sum(),
        "zero": (x == 0).sum(),
    }


def _put(index, value):
    def change(tensors):
        tensors[index][:1] = value

    return change


def _scale(index, factor):
    def change(tensors):
        tensors[index] *= factor

    return change


def _both(*changes):
    return lambda tensors: [change(tensors) for change in changes]


@pytest.fixture
def settled():
    training = Training()
    assert training.run(steps=60) == []
    return training


def test_nan_names_the_first_site_in_order_of_execution(settled):
    alerts = settled.run(_both(_put(1, math.nan), _put(3, math.nan), _put(2, math.nan)))
    assert len(alerts) == 1
    details = alerts[0].details
    assert (details["rule"], details["node"], details["direction"]) == ("nan", "last", "forward")
    assert (details["step"], details["rank"], details["others"]) == (60, 3, 2)


def test_a_mask_of_inf_is_none_and_an_inf_that_is_new_is_one(settled):
    masked = Training()
    assert masked.run(_put(0, -math.inf), steps=60) == []
    alert = masked.run(_both(_put(0, -math.inf), _put(1, math.inf)))
    assert [a.details["node"] for a in alert] == ["last"]


def test_nan_that_reaches_nothing_and_was_always_there_is_none():
    training = Training()
    assert training.run(_put(1, math.nan), steps=60) == []
    alerts = training.run(_both(_put(1, math.nan), _put(3, math.nan)))
    assert [(a.details["node"], a.details["role"]) for a in alerts] == [("first", "gradient")]


def test_nan_of_the_first_step_that_reaches_a_gradient_is_told_with_its_origin():
    alerts = Training().run(_both(_put(0, math.nan), _put(1, math.nan), _put(2, math.nan)))
    assert [(a.details["node"], a.details["step"]) for a in alerts] == [("first", 0)]


def test_a_skip_of_the_gradient_scaler_is_none(settled):
    skip = ((0, -1, "scalar", "scaler_skip", 65536.0),)
    assert settled.run(_put(2, math.inf), facts=skip) == []
    assert len(settled.run(_put(2, math.inf))) == 1


@pytest.mark.parametrize("factor", [1000.0, 1e-3])
def test_spikes_and_collapses_depart(settled, factor):
    alerts = settled.run(_scale(1, factor))
    assert [(a.details["rule"], a.details["node"]) for a in alerts] == [("departure", "last")]
    assert settled.run(steps=3) == []


def test_nan_in_the_history_does_not_blind_it():
    training = Training()
    for step in range(60):
        training.run(_put(1, math.nan) if step % 3 == 0 else None)
    assert [a.details["rule"] for a in training.run(_scale(1, 1000.0), steps=40)][-1:] == ["departure"]


def test_a_lasting_cause_is_told_once(settled):
    assert len(settled.run(_scale(0, 1000.0), steps=40)) == 1
    assert "more findings" in settled.watcher.close()[0].message


def test_what_follows_nan_is_not_told(settled):
    spread = _both(*(_put(i, math.nan) for i in range(4)))
    assert len(settled.run(spread)) == 1
    assert settled.run(_both(spread, _scale(5, 0.0)), steps=20) == []


def test_steps_down_of_the_learning_rate_are_none():
    training = Training()
    alerts = training.run(steps=50, scalars={"lr": 0.1})
    alerts += training.run(_both(_scale(4, 0.01), _scale(5, 0.01)), steps=50, scalars={"lr": 0.001})
    alerts += training.run(_both(_scale(4, 0.0), _scale(5, 0.0)), steps=5, scalars={"lr": 0.0})
    assert alerts == []


def test_a_tensor_that_becomes_zero_or_constant(settled):
    def constant(tensors):
        tensors[1][:] = 0.7

    assert [a.details["rule"] for a in Training().run(_scale(3, 0.0), steps=60)] == []
    assert [a.details["rule"] for a in settled.run(_scale(3, 0.0))] == ["zero"]
    other = Training()
    other.run(steps=60)
    assert [a.details["rule"] for a in other.run(constant)] == ["zero"]


def test_an_update_as_large_as_its_parameter():
    def large(tensors):
        tensors[5] *= 0.9 / np.linalg.norm(tensors[5])

    training = Training(alerts=("ratio",))
    assert training.run(steps=60) == []
    assert [a.details["rule"] for a in training.run(large)] == ["ratio"]


def test_gradient_norms_that_explode_or_vanish():
    for factor in (10.0, 1e-3):
        training = Training(alerts=("exploding",))
        assert training.run(steps=60, scalars={"grad_norm": 1.0}) == []
        alerts = training.run(steps=6, scalars={"grad_norm": factor})
        assert [a.details["rule"] for a in alerts] == ["exploding"]


def test_slow_drift_of_an_activation():
    training = Training(alerts=("drift",))
    training.run(steps=70)
    alerts = []
    for step in range(200):
        alerts += training.run(_scale(0, 1.03**step))
    assert [a.details["node"] for a in alerts] == ["first"]


def test_a_function_is_a_rule_and_hears_alerts(settled):
    heard: list[Any] = []
    training = Training(alerts=(lambda step: "too long" if step.step == 7 else None,), on_alert=heard.append)
    training.run(steps=10)
    assert [(alert.step, alert.message, alert.place) for alert in heard] == [(7, "too long", "the step")]


def test_what_fails_is_an_event_and_the_others_go_on():
    def broken(step):
        raise RuntimeError("no")

    training = Training(alerts=(broken, "nan"), on_alert=broken)
    events = training.watcher.take(training._batch(training.tensors(), {}, ()))
    assert "'broken' failed" in events[0].message
    training.step += 1
    tensors = training.tensors()
    tensors[3][:1] = math.nan
    kinds = [event.kind for event in training.watcher.take(training._batch(tensors, {}, ()))]
    assert kinds == ["alert", "error"]


@pytest.mark.parametrize("rule", ["nowhere:thing", "noname", 3.5])
def test_what_is_no_rule_is_refused(rule):
    with pytest.raises(ConfigError):
        Watcher(RecordOptions(alerts=(rule,)), 0)


def test_state_is_bounded(settled):
    held = settled.watcher._history
    assert held._ring.nbytes <= 256 * 2048
    held._grow(10 * MOST_SITES)
    assert held._ring.shape[1] == MOST_SITES
