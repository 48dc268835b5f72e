"""The alerts are quiet on clean trainings and find anomalies, with the rules and constants of the preset."""

import pytest

from benchmarks.alert_trainings import RECIPES
from benchmarks.alerts import KINDS, FlippedBit, NanActivation, anomalous, clean, summary


def _recipe(word: str) -> int:
    return next(i for i, recipe in enumerate(RECIPES) if word in recipe.name)


def test_a_clean_training_raises_none():
    assert clean(_recipe("perceptron"), steps=120).alerts == ()


def test_anomalies_are_found_at_their_place():
    trials = [anomalous(KINDS.index(kind), _recipe("perceptron")) for kind in (NanActivation, FlippedBit)]
    assert all(trial.found for trial in trials), trials
    assert trials[0].named
    assert trials[1].named
    assert summary(trials)["found"] == 2


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(RECIPES)))
def test_every_recipe_is_quiet_when_clean(number):
    assert clean(number, steps=1000).alerts == ()


@pytest.mark.long
def test_nearly_all_anomalies_are_found():
    result = summary([anomalous(number) for number in range(10 * len(KINDS))])
    assert result["found"] >= 0.95 * result["anomalies"]
    assert result["false_before"] <= 1
