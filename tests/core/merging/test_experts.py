"""Experts that each rank numbers from 0 are the experts of the whole model; each may have any number of tokens."""

from __future__ import annotations

import numpy as np
import pytest

import msprobe
from msprobe.core.comparing import compare_runs
from msprobe.core.sites import Role

from .cutting import NO_TENSORS, Seen, write_one, write_ranks
from .model import BACKWARD, UPDATE

TOKENS = (3, 0, 2, 4)


def expert(name, number, weights, tokens):
    weight, entering = weights[number], tokens[number]
    yield Seen(name, weight, role=Role.PARAMETER, argument="weight")
    yield Seen(name, entering, role=Role.INPUT)
    yield Seen(name, entering @ weight)
    gradient = entering.T @ (entering @ weight)
    yield Seen(name, gradient, BACKWARD, Role.GRADIENT, "weight")
    yield Seen(name, gradient, UPDATE, Role.GRADIENT, "weight")


@pytest.fixture
def tensors(floats):
    return [floats(4, 4) for _ in TOKENS], [floats(count, 4) for count in TOKENS]


@pytest.fixture
def one(tensors, tmp_path):
    seen = [s for number in range(4) for s in expert(f"experts.{number}", number, *tensors)]
    return write_one(tmp_path / "one", seen, what=NO_TENSORS)


def write(path, tensors, change=lambda seen: seen, *, told=True):
    """Two expert-parallel ranks, which are the data-parallel ones too, hold two experts each."""

    def look(place):
        for i in range(2):
            for seen in expert(f"experts.{i}", 2 * place["ep"] + i, *tensors):
                yield change(seen) if place["ep"] == 1 else seen

    facts = lambda place: tuple((f"experts.{i}", "path", f"experts.{2 * place['ep'] + i}") for i in range(2))  # noqa: E731
    mesh = lambda place: {"dp": (place["ep"], 2), "ep": (place["ep"], 2)}  # noqa: E731
    return write_ranks(path, {"ep": 2}, look, facts=facts if told else (), mesh=mesh if told else {}, what=NO_TENSORS)


def test_experts_that_count_from_0_on_each_rank_go_on(tensors, one, tmp_path):
    many = write(tmp_path / "many", tensors, told=False)
    comparison = msprobe.compare(many, one, parallel={"dp": 2, "ep": 2})
    assert comparison.summary.verdict == "clean", comparison.summary.sentence
    assert set(comparison.pairs["candidate_node"]) == {f"experts.{i}" for i in range(4)}


def test_experts_get_their_global_number(tensors, one, tmp_path):
    comparison = compare_runs(write(tmp_path / "many", tensors), one)
    assert comparison.summary.verdict == "clean", comparison.summary.sentence
    assert comparison.summary.coverage.matched_share == comparison.summary.coverage.judged_share == 1.0
    assert set(comparison.pairs["candidate_node"]) == {f"experts.{i}" for i in range(4)}


def test_an_expert_that_turns_to_nan_is_named(tensors, one, tmp_path):
    def spoil(seen):
        wrong = seen.node == "experts.0" and seen.role is Role.OUTPUT
        return seen.with_values(seen.values * np.float32(np.nan)) if wrong else seen

    source = compare_runs(write(tmp_path / "many", tensors, spoil), one).summary.sources[0]
    assert (source.node, source.role) == ("experts.2", "output")
