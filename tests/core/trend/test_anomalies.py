"""Anomalies over steps and across replicas; where two runs part. Clean noise raises nothing."""

import numpy as np
import pytest

from msprobe.core.errors import TrendError
from msprobe.core.trend.anomalies import anomalies
from msprobe.core.trend.forks import forks
from msprobe.core.trend.index import open_index

STEPS = range(40)


def noisy(rank, step, seed=0, spread=0.05):
    """Changes that give every site noise around 1."""
    noise = 1 + spread * np.random.default_rng([seed, rank, step]).standard_normal(6)
    sites = range(6)
    return {
        "norm": dict(zip(sites, noise.tolist(), strict=True)), "min": dict(zip(sites, (-noise).tolist(), strict=True)),
        "max": dict(zip(sites, noise.tolist(), strict=True)),
    }  # fmt: skip


def with_change(place, column, value, seed=0):
    def change(rank, step):
        changes = noisy(rank, step, seed)
        if (rank, step) == place[:2]:
            changes[column][place[2]] = value
        return changes

    return change


def test_clean_noise_raises_nothing(simulate):
    for seed in range(2):
        path = simulate(f"run{seed}", ranks=8, steps=STEPS, change=lambda r, s, seed=seed: noisy(r, s, seed))
        assert anomalies(open_index(path)) == []


@pytest.mark.parametrize(
    ("column", "value"), [("norm", 50.0), ("norm", 0.001), ("norm", 0.0), ("min", -9.0), ("max", 9.0)]
)
def test_a_spike_or_collapse_is_found_at_its_place(simulate, column, value):
    path = simulate(ranks=1, steps=STEPS, change=with_change((0, 31, 4), column, value))
    found = anomalies(open_index(path))
    assert [(a.site, a.step, a.statistic, a.value) for a in found] == [(4, 31, column, value)]
    assert not found[0].low <= value <= found[0].high


def test_a_rank_unlike_its_replicas_is_named(simulate):
    path = simulate(ranks=12, steps=range(3), change=with_change((7, 1, 2), "norm", 30.0))
    found = anomalies(open_index(path))
    assert [(a.site, a.step, a.rank, a.against) for a in found] == [(2, 1, 7, "replicas")]


def test_ranks_that_do_other_work_are_no_replicas(simulate):
    def change(rank, step):
        return {name: {i: v * 100 ** (rank % 2) for i, v in c.items()} for name, c in noisy(rank, step).items()}

    path = simulate(
        ranks=20, steps=range(3), change=change, mesh=lambda rank: {"tp": (rank % 2, 2), "dp": (rank // 2, 10)}
    )
    assert anomalies(open_index(path)) == []


def test_a_nan_in_the_history_does_not_hide_a_spike(simulate):
    def change(rank, step):
        changes = with_change((0, 31, 4), "norm", 50.0)(rank, step)
        if step % 5 == 0:
            changes["nan"] = {4: 1}
            changes["norm"][4] = np.nan
        return changes

    found = anomalies(open_index(simulate(ranks=1, steps=STEPS, change=change)))
    assert [(a.site, a.step) for a in found] == [(4, 31)]


def test_two_runs_part_where_a_site_leaves_the_band(simulate):
    def forked(rank, step):
        changes = noisy(rank, step)
        if step >= 12:
            for site in (4, 5):
                changes["norm"][site] *= 3
        return changes

    a = open_index(simulate("a", ranks=2, steps=range(20), change=forked))
    b = open_index(simulate("b", ranks=2, steps=range(20), change=lambda r, s: noisy(r, s)))
    found = forks(a, b)
    assert [(f.candidate_site, f.step, f.from_step) for f in found] == [(4, 12, 11), (5, 12, 11)]
    assert forks(b, b) == []


def test_runs_without_common_sites_are_refused(simulate):
    a, b = open_index(simulate("a", steps=[1])), open_index(simulate("b", steps=[2]))
    with pytest.raises(TrendError, match="have no step in common"):
        forks(a, b)
