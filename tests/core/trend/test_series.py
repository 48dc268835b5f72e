"""Series along one axis, the search for sites, and two runs as one picture."""

import numpy as np
import pytest

from msprobe.core.errors import TrendError
from msprobe.core.trend.index import Query, open_index
from msprobe.core.trend.overlays import overlay
from msprobe.core.trend.series import series
from msprobe.core.trend.states import State


def test_a_series_runs_along_any_axis(simulate):
    index = open_index(simulate(ranks=3))
    along_steps = series(index, "step", rank=1, site=4)
    assert along_steps.values.tolist() == [40_002 + 100 * step for step in range(4)]
    assert series(index, "rank", step=2, site=0).values.tolist() == [201, 202, 203]
    along_sites = series(index, "site", step=0, rank=0)
    assert along_sites.values.tolist() == [1 + 10_000 * site for site in along_sites.positions]
    assert series(index, "step", site=0).values.tolist() == [3, 103, 203, 303]  # pooled over ranks


def test_the_band_of_a_series_leaves_its_outlier_out(simulate):
    changes = {7: {"norm": {0: 1e6}}}
    path = simulate(ranks=1, steps=range(20), change=lambda r, s: changes.get(s, {"norm": {0: 5.0 + s % 2}}))
    found = series(open_index(path), "step", rank=0, site=0)
    assert found.low < 5 < 6 < found.high < found.values[7]


@pytest.mark.parametrize("settings", [{}, {"step": 1}, {"rank": 99}])
def test_a_series_needs_something_fixed_that_is_there(simulate, settings):
    index = open_index(simulate())
    if "rank" in settings:
        assert (series(index, "step", **settings).states == State.ABSENT).all()
    else:
        with pytest.raises(TrendError, match="runs along one of"):
            series(index, "step", **settings)


def test_sites_are_found_by_text_and_tags(simulate):
    index = open_index(simulate())
    assert index.find_sites("layers.1").tolist() == [3, 4, 5]
    assert index.find_sites(kind="activation out").tolist() == [1, 4]
    assert index.find_sites("linear", layer=0, parameter_kind="weight").tolist() == [2]
    with pytest.raises(TrendError, match=r"no kind 'activation'\. Did you mean"):
        index.find_sites(kind="activation")


@pytest.mark.parametrize(("way", "expected"), [("difference", 20_101.0), ("ratio", 2.0)])
def test_two_runs_are_compared_cell_by_cell(simulate, way, expected):
    def doubled(rank, step):
        return {"norm": {2: 2.0 * (1 + rank + 100 * step + 20_000)}}

    a = open_index(simulate("a", change=doubled, reverse=True))
    b = open_index(simulate("b", ranks=2, steps=range(1, 6)))
    found = overlay(a, b, Query("step", "rank", fixed=a.find_sites("layers.0 backward")[0]), way=way)
    assert found.values.shape == (2, 3)
    assert found.values[0, 0] == expected
    same = overlay(a, b, Query("step", "rank", fixed=a.find_sites("layers.1 forward output")[0]), way=way)
    assert (same.values == (0 if way == "difference" else 1)).all()


def test_the_worse_state_of_two_runs_is_kept(simulate):
    a = open_index(simulate("a", change=lambda r, s: {"nan": {1: 1}} if s == 2 else None))
    b = open_index(simulate("b"))
    for pair in ((a, b), (b, a)):
        states = overlay(*pair, Query("step", "rank", fixed=1)).states
        assert np.argwhere(states == State.NAN)[:, 1].tolist() == [2, 2, 2]
