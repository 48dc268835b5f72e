"""Options change on all ranks at the same step, through files alone; what is wrong changes nothing."""

import json
import threading
import time
from typing import Any

import pytest

from msprobe.core import control as controlling
from msprobe.core.control import Control, request
from msprobe.core.errors import ConfigError
from msprobe.core.options import RecordOptions


class Rank:
    """A training of one rank that only counts steps."""

    def __init__(self, run, number, options=None, refuse=lambda options: None):
        self.step = 0
        self.notes: Any = []
        self.changes: Any = []
        self.control = Control(
            run, number, options or RecordOptions(control="on"), step=lambda: self.step, note=self.notes.append,
            refuse=refuse,
        )  # fmt: skip

    def run(self, steps=1):
        for _ in range(steps):
            self.step += 1
            agreed = self.control.due(self.step) if self.control.pending else None
            if agreed is not None:
                self.changes.append((self.step, self.control.applied(agreed), agreed.paused))


@pytest.fixture
def start(tmp_path, monkeypatch):
    monkeypatch.setattr(controlling, "INTERVAL", 0.02)
    ranks = []

    def make(number=0, **settings):
        ranks.append(Rank(tmp_path, number, **settings))
        return ranks[-1]

    yield make
    for rank in ranks:
        rank.control.close()


def _until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_all_ranks_change_at_the_same_step_and_a_late_one_says_so(tmp_path, start):
    first, second, late = start(0), start(1), start(2)
    late.step = 500
    answer = request(tmp_path, {"options": {"every": 4, "what": "statistics,tensors"}, "at": 50}, seconds=10)
    assert (answer["apply_at"], answer["generation"]) == (50, 1)
    _until(lambda: first.control.pending and second.control.pending and late.control.pending)
    for rank in (first, second, late):
        rank.run(60)
    for rank in (first, second):
        [(step, options, paused)] = rank.changes
        assert (step, options.every, options.what, paused) == (50, 4, {"statistics", "tensors"}, False)
    assert late.changes[0][0] == 501
    assert "too late: it was to be at step 50" in late.notes[0]


def test_changes_add_up_and_stop_and_start_keep_them(tmp_path, start):
    rank = start()
    for content in ({"options": {"every": 4}}, {"paused": True}, {"paused": False, "options": {"window": 2}}):
        answer = request(tmp_path, content, seconds=10)
        rank.run(answer["apply_at"] - rank.step)
    assert [(o.every, o.window, paused) for _, o, paused in rank.changes] == [
        (4, 1, False),
        (4, 1, True),
        (4, 2, False),
    ]


def test_a_change_lies_ahead_of_a_fast_training(tmp_path, start):
    rank = start()
    stop = threading.Event()

    def train():
        while not stop.wait(0.001):
            rank.run()

    thread = threading.Thread(target=train)
    thread.start()
    time.sleep(0.3)
    answer = request(tmp_path, {"options": {"every": 2}}, seconds=10)
    _until(lambda: rank.changes)
    stop.set()
    thread.join()
    assert answer["apply_at"] - answer["step"] > 5
    assert rank.changes[0][0] == answer["apply_at"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"options": {"evry": 2}}, "every"),
        ({"options": {"every": 0}}, "0 would record no step"),
        ({"options": {"start_step": 2}}, "cannot change"),
        ({"options": {"every": 2}, "at": 0}, "has begun"),
    ],
)
def test_a_wrong_request_is_refused_and_changes_nothing(tmp_path, start, content, why):
    rank = start()
    with pytest.raises(ConfigError, match=why):
        request(tmp_path, content, seconds=10)
    rank.run(10)
    assert rank.changes == []
    assert why in rank.notes[0]


def test_nobody_answers_for_a_run_that_has_ended(tmp_path, start):
    start().control.close()
    with pytest.raises(ConfigError, match="nobody answers"):
        request(tmp_path, {"options": {"every": 2}}, seconds=0.2)


def test_an_edit_of_the_file_applies_and_a_bad_one_keeps_the_old_options(tmp_path, start):
    file = tmp_path / "probe.yaml"
    file.write_text("every: 2\ntargets: a\n")
    rank = start(options=RecordOptions.create(every=2, targets="a", control=str(file)))
    file.write_text("every: 2\ntargets: a\nwindow: two\n")
    _until(lambda: rank.notes)
    assert f"{file}:3" in rank.notes[0]
    assert "the old options stay" in rank.notes[0]
    file.write_text("every: 5\n")
    _until(lambda: rank.control.pending)
    rank.run(10)
    [(_, options, _)] = rank.changes
    assert (options.every, options.targets) == (5, ())


def test_what_was_agreed_before_a_restart_is_over(tmp_path, start):
    rank = start()
    request(tmp_path, {"options": {"every": 7}}, seconds=10)
    rank.control.close()
    again, other = start(0), start(1)
    _until(lambda: other.control.pending)
    for one in (again, other):
        one.run(10)
    assert [o.every for _, o, _ in other.changes][-1:] in ([], [1])
    assert json.loads((tmp_path / "control" / "agreed.json").read_text())["options"] == {}
    assert request(tmp_path, {"options": {"every": 3}}, seconds=10)["generation"] == 3
