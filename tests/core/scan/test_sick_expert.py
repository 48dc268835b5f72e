"""Case A: hundreds of ranks, one expert without tokens; one sentence names step, rank, expert and reason."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.sick_runs import SickExpert, write_sick_expert
from msprobe.core.scan.scanning import mark_origins, scan
from msprobe.core.trend.index import Query, open_index
from msprobe.core.trend.states import State


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """512 ranks; NaN at step 52 on rank 99."""
    plan = SickExpert(steps=range(51, 54), layers=2, experts=1)
    path = tmp_path_factory.mktemp("large") / "run"
    write_sick_expert(path, plan)
    return plan, open_index(path)


def test_one_sentence_names_step_rank_expert_and_reason(large):
    plan, index = large
    sentence = scan(index).sentence
    assert sentence == (
        "At step 52, rank 99, the gradient of model.layers.1.mlp.experts.0.fc1.weight before reduction becomes NaN: "
        "expert 0 got no tokens, its input is empty (32x64 elsewhere); the reduction took it to the 64 ranks with ep=3."
    )
    assert len(plan.group) == 64


def test_the_way_of_the_nan_is_told_from_reduction_to_later_steps(large):
    found = scan(large[1])
    assert [f.kind for f in found.findings] == ["non-finite"]
    told = " ".join(found.findings[0].evidence)
    assert "the update put it into 1 parameter on 64 ranks" in told
    assert "from step 53 on it is on all 512 ranks" in told
    assert found.exit_code == 1
    assert any("clocks differ" in note for note in found.notes)


def test_the_heat_map_shows_who_was_first(large):
    plan, index = large
    site = index.sites.numbers[plan.sick_parameter, "backward", "gradient", "weight", 0]
    found = index.slice(Query("step", "rank", fixed=site))
    assert found.states.shape == (512, 3)
    bad = np.argwhere(found.states[:, :2] >= State.NAN)
    assert bad.tolist() == [[99, 1]]
    mark_origins(index)
    for query in (Query("step", "rank", fixed=site), Query("step", "rank"), Query("site", "rank", fixed=52)):
        assert (index.slice(query).states == State.NAN_MADE).sum() == 1


@pytest.mark.parametrize("seed", range(8))
def test_any_step_rank_and_expert_is_found(tmp_path, seed):
    draw = np.random.default_rng(seed)
    plan = SickExpert(
        ranks=16, steps=range(10, 15), layers=2, experts=3, expert_parallel=4, micro_steps=int(draw.integers(1, 3)),
        step=int(draw.integers(10, 14)), rank=int(draw.integers(16)), expert=int(draw.integers(3)),
        layer=int(draw.integers(2)), seed=seed, traced=bool(draw.integers(2)),
    )  # fmt: skip
    plan = replace(plan, micro_step=plan.micro_steps - 1)
    write_sick_expert(tmp_path / "run", plan)
    found = scan(tmp_path / "run")
    first = found.findings[0]
    assert (first.step, first.rank, first.micro_step) == (plan.step, plan.rank, plan.micro_step)
    assert first.node == plan.sick_parameter
    assert f"expert {plan.expert} got no tokens" in found.sentence
    assert f"the reduction took it to the 4 ranks with ep={plan.rank % 4}" in found.sentence
    assert any("order of execution" in line for line in first.evidence) is not plan.traced


def test_an_expert_without_tokens_is_no_fault_by_itself(tmp_path):
    write_sick_expert(
        tmp_path / "run", SickExpert(ranks=32, steps=range(5), expert_parallel=4, step=2, rank=1, harmful=False)
    )
    found = scan(tmp_path / "run")
    assert (found.exit_code, found.findings) == (0, ())
    assert found.sentence.startswith("Nothing is wrong")
