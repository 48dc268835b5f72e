"""The index: what was written is found at its place, while a run grows, restarts, loses ranks, or cannot be written."""

import json
from typing import Any

import numpy as np
import pytest

from msprobe.core.errors import RunError, TrendError
from msprobe.core.run.batch import Fact
from msprobe.core.trend.index import Query, open_index
from msprobe.core.trend.manifest import one_writer
from msprobe.core.trend.states import State


def picture(path, x, y, **settings):
    index = path if hasattr(path, "slice") else open_index(path)
    return index.slice(Query(x, y, **settings))


def expected(steps, ranks, site):
    return 1 + np.asarray(ranks)[:, None] + 100 * np.asarray(steps)[None, :] + 10_000 * site


@pytest.mark.parametrize("block_rows", [1, 500, 10**6])
def test_every_cell_is_at_its_place_however_blocks_are_cut(simulate, block_rows):
    index = open_index(simulate(ranks=70, steps=range(3, 6)), block_rows=block_rows)
    assert index.manifest.rows == 70 * 3 * 6
    for site in range(6):
        found = index.slice(Query("step", "rank", fixed=site))
        np.testing.assert_array_equal(found.values, expected(range(3, 6), range(70), site))
        assert (found.states == State.PRESENT).all()


def test_sites_that_ranks_number_otherwise_are_one(simulate):
    path = simulate(reverse=True)
    index = open_index(path)
    assert len(index.sites) == 6
    np.testing.assert_array_equal(picture(index, "step", "rank", fixed=4).values, expected(range(4), range(3), 4))


def test_a_growing_run_is_taken_in_step_by_step(start_simulation):
    simulation = start_simulation(ranks=2).start(0).start(1)
    generations = set()
    for step in range(6):
        for rank in (0, 1) if step % 2 else (1, 0):
            simulation.write(rank, step, first=step == 0).flush()
        index = open_index(simulation.path, block_rows=30)
        generations.add(index.manifest.generation)
        np.testing.assert_array_equal(
            picture(index, "step", "rank", fixed=2).values, expected(range(step + 1), range(2), 2)
        )
    assert len(generations) == 6
    assert open_index(simulation.path).manifest.generation == max(generations)  # nothing new, nothing written
    files = {path.name for path in index.folder.iterdir()} - {"manifest.json", "lock"}
    assert index.manifest.files <= files
    assert len(files) <= 2 * len(index.manifest.files)


def test_a_rank_that_comes_late_fills_earlier_blocks(start_simulation):
    simulation = start_simulation(ranks=2).start(0)
    for step in range(6):
        simulation.write(0, step, first=step == 0)
    open_index(simulation.flush().path, block_rows=12)
    simulation.start(1)
    for step in range(-1, 4):
        simulation.write(1, step, first=step == -1)
    index = open_index(simulation.flush().path, block_rows=12)
    found = picture(index, "step", "rank", fixed=0)
    assert found.states.tolist() == [[0, 4, 4, 4, 4, 4, 4], [4, 4, 4, 4, 4, 0, 0]]
    assert found.values[1, :5].tolist() == [2 + 100 * step for step in range(-1, 4)]


def test_a_restart_that_goes_back_replaces_what_was_taken_in(start_simulation):
    simulation = start_simulation(ranks=1).start(0)
    for step in range(5):
        simulation.write(0, step, first=step == 0, change={"norm": {0: -1.0}})
    assert picture(simulation.flush().path, "step", "rank", fixed=0).values.tolist() == [[-1] * 5]
    simulation.close()
    with pytest.warns(RuntimeWarning, match="as a restart"):
        simulation.start(0)
    for step in range(3, 5):
        simulation.write(0, step, first=step == 3)
    found = picture(simulation.flush().path, "step", "rank", fixed=0)
    assert found.values.tolist() == [[-1, -1, -1, 301, 401]]


def test_states_are_not_values(simulate):
    changes = {
        "nan": {0: 1}, "pos_inf": {1: 2, 0: 1}, "neg_inf": {2: 1}, "zero": {3: 16}, "status": {4: 5},
        "norm": {0: np.nan, 3: 0},
    }  # fmt: skip
    path = simulate(ranks=1, steps=[0], change=lambda rank, step: changes)
    found = picture(path, "site", "rank", fixed=0)
    order = open_index(path).sites.order
    by_site = dict(zip(order.tolist(), found.states[0].tolist(), strict=True))
    assert by_site == dict(
        enumerate([State.NAN, State.POS_INF, State.NEG_INF, State.ZERO, State.UNMEASURED, State.PRESENT])
    )
    counts = picture(path, "site", "rank", fixed=0, statistic="pos_inf").values[0]
    assert counts[list(order).index(1)] == 2


def test_a_tensor_without_elements_is_empty_and_not_nan(simulate):
    path = simulate(ranks=1, steps=[0], elements=0, change=lambda rank, step: {"norm": dict.fromkeys(range(6), np.nan)})
    assert (picture(path, "site", "rank", fixed=0).states == State.EMPTY).all()


def test_one_bad_cell_colours_its_pixel(simulate):
    path = simulate(ranks=20, steps=range(30), change=lambda r, s: {"nan": {4: 1}} if (r, s) == (13, 22) else None)
    for query in ({"fixed": 4}, {}):
        found = picture(path, "step", "rank", width=5, height=4, **query)
        assert np.argwhere(found.states == State.NAN).tolist() == [[2, 3]]
        assert found.states.shape == (4, 5)
        highest = 1 + 19 + 100 * 29 + 10_000 * (4 if query else 5)
        assert found.values[3, 4] == highest


@pytest.mark.parametrize(("statistic", "expected"), [("min", -50001.0), ("max", 50002.0), ("largest", 50002.0)])
def test_a_pixel_keeps_the_extreme_that_its_statistic_is_about(simulate, statistic, expected):
    path = simulate(ranks=2, steps=[0])
    found = picture(path, "step", "rank", statistic=statistic, height=1)
    assert found.values[0, 0] == (expected if statistic != "min" else -50002.0)
    assert picture(path, "step", "rank", statistic="min", lowest=False, sites=[5], height=1).values[0, 0] == -50001.0


@pytest.mark.parametrize("axes", [("step", "rank"), ("site", "rank"), ("site", "step"), ("rank", "site")])
def test_pooling_by_a_roll_up_is_pooling_by_the_cells(simulate, axes):
    changes = {(1, 2): {"nan": {3: 1}}, (2, 0): {"pos_inf": {1: 1}}}
    index = open_index(simulate(ranks=3, change=lambda r, s: changes.get((r, s))), block_rows=20)
    x, y = axes
    third = next(a for a in ("step", "rank", "site") if a not in axes)
    every: dict[str, Any] = {"step": {"steps": (0, 3)}, "rank": {"ranks": [0, 1, 2]}, "site": {"sites": list(range(6))}}
    for statistic in ("norm", "min", "mean", "nan"):
        rolled = index.slice(Query(x, y, statistic=statistic))
        cells = index.slice(Query(x, y, statistic=statistic, **every[third]))
        if third == "site":
            np.testing.assert_array_equal(rolled.values, cells.values)
            np.testing.assert_array_equal(rolled.states, cells.states)
        else:
            assert sorted(rolled.values.ravel().tolist()) == sorted(cells.values.ravel().tolist())


def test_a_chosen_part_of_the_third_axis_is_pooled_alone(simulate):
    found = picture(simulate(), "step", "rank", sites=[0, 2])
    np.testing.assert_array_equal(found.values, expected(range(4), range(3), 2))
    assert picture(simulate("b"), "site", "step", ranks=[0, 2]).values.max() == level_of(2, 3, 5)


def level_of(rank, step, site):
    return 1 + rank + 100 * step + 10_000 * site


def test_micro_steps_are_pooled_or_chosen(simulate):
    changes = {"norm": {6: 7.0, 0: 5.0}}  # site 0 in micro-steps 1 and 0
    path = simulate(ranks=1, steps=[0], micro_steps=2, change=lambda rank, step: changes)
    assert picture(path, "step", "rank", fixed=0).values.item() == 7
    assert picture(path, "step", "rank", fixed=0, micro_step=0).values.item() == 5


def test_scalars_are_sites_of_their_own_kind(simulate):
    path = simulate(ranks=2, facts=lambda rank, step: {"loss": 5.0 - step + rank if step < 3 else float("nan")})
    found = picture(path, "step", "rank", kind="scalar")
    assert found.values[:, :3].tolist() == [[5, 4, 3], [6, 5, 4]]
    assert (found.states[:, 3] == State.NAN).all()


def test_facts_about_modules_are_no_scalars(start_simulation):
    simulation = start_simulation(ranks=1).start(0)
    simulation.write(0, 0, first=True, facts=[Fact(0, 0, 0, "scalar", "eps", 1e-5)]).flush()
    assert len(open_index(simulation.path).sites) == 6


def test_tags_come_from_names(simulate):
    sites = open_index(simulate()).sites
    assert sites["layer"].tolist() == [0, 0, 0, 1, 1, 1]
    assert sites["shape"].tolist() == ["16"] * 6
    assert sites.name(2) == "layers.0 backward gradient weight"
    assert sites["parameter_kind"].tolist() == ["", "", "weight"] * 2
    assert sites.order.tolist() == [0, 1, 3, 4, 2, 5]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"x": "stp", "y": "rank"}, "no axis 'stp'. Did you mean 'step'?"),
        ({"x": "step", "y": "step"}, "both axes are 'step'"),
        ({"x": "step", "y": "rank", "statistic": "nrom"}, "no statistic 'nrom'. Did you mean 'norm'?"),
        ({"x": "step", "y": "rank", "kind": "gradient"}, "no kind 'gradient'"),
        ({"x": "step", "y": "rank", "width": 0}, "ask for 1 x 1 at least"),
        ({"x": "step", "y": "rank", "fixed": 99}, "has no site 99"),
        ({"x": "site", "y": "rank", "fixed": 99}, "has no step 99"),
        ({"x": "step", "y": "rank", "statistic": "1; DROP TABLE x"}, "no statistic"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(simulate, settings, message):
    path = simulate()
    with pytest.raises(TrendError, match=message.replace("?", r"\?")):
        open_index(path).slice(Query(**settings))


def test_empty_selections_are_pictures_of_absence(simulate):
    found = picture(simulate(), "site", "rank", kind="router")
    assert found.states.tolist() == [[0], [0], [0]]
    assert np.isnan(found.values).all()


def test_the_store_reads_its_own_folder_and_nothing_else(simulate, tmp_path):
    index = open_index(simulate())
    (tmp_path / "secret.parquet").write_bytes((index.folder / index.manifest.sites).read_bytes())
    connection = index.store._connection
    assert connection.execute(
        "SELECT count(*) FROM read_parquet(?)", [str(index.folder / index.manifest.sites)]
    ).fetchone()
    for statement in (
        f"SELECT * FROM read_parquet('{tmp_path}/secret.parquet')",
        f"COPY (SELECT 1) TO '{tmp_path}/out.parquet'",
        "SET enable_external_access = true",
        "INSTALL httpfs",
    ):
        with pytest.raises(Exception, match=r"(?i)permission|disabled|locked|cannot"):
            connection.execute(statement)


def test_a_damaged_or_foreign_index_is_made_anew(simulate):
    path = simulate()
    index = open_index(path)
    for damage in ("{", json.dumps({"format": "msprobe-index", "schema": 0}), "[]"):
        (index.folder / "manifest.json").write_text(damage)
        assert open_index(path).manifest.rows == index.manifest.rows
    (index.folder / open_index(path).manifest.blocks[0].over_ranks).unlink()
    assert open_index(path).manifest.rows == index.manifest.rows


def test_one_writer_at_a_time(simulate):
    path = simulate()
    index = open_index(path)
    with one_writer(index.folder) as mine:
        assert mine
        assert open_index(path).manifest == index.manifest


def test_a_run_that_cannot_be_written_to_is_indexed_elsewhere(simulate):
    path = simulate()
    (path / "index").write_text("in the way")  # as a folder without permission is, for every user
    index = open_index(path)
    assert index.manifest.rows == 72
    assert path not in index.folder.parents


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(RunError, match="not a run"):
        open_index(tmp_path)
