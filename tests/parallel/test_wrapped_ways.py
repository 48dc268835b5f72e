"""What is recorded of wrappers in the ways that people use them, on every rank; recording changes no bit of any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import msprobe
from msprobe.core.placement import read_layout
from tests.parallel.launching import run_layout
from tests.parallel.wrapped_ways import CASES

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("ways") / "run"
    run_layout("wrapped ways", path)
    return {name: msprobe.open_run(Path(f"{path}-{number}")) for number, name in enumerate(CASES)}


def sites(rank: Any, step: int = 0) -> dict[str, list[tuple[str, Any]]]:
    """Gives format and layout of the records of a step by ``direction role node.argument``."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for row, number in enumerate(rank.records["site"].tolist()):
        if rank.records["step"][row] == step:
            site, form = rank.sites.site(number), rank.forms[int(rank.records["form"][row])]
            place = f"{site.direction.value} {site.role.value} {site.node}.{site.argument}"
            found.setdefault(place, []).append((form.dtype, read_layout(form.layout)))
    return found


def facts(rank: Any, kind: str) -> dict[str, Any]:
    root = [node.path for node in rank.nodes].index("")
    return {fact.name: fact.value for fact in rank.facts if fact.kind == kind and fact.node == root}


@pytest.mark.parametrize("name", list(CASES))
def test_nothing_fails_and_every_trainable_parameter_is_recorded_under_its_own_name(name, runs):
    for number in range(2):
        rank = runs[name].rank(number)
        kinds = {event.kind for event in rank.events}
        assert kinds <= ({"gap"} if "compiled" in name or "not sharded" in name else set()), rank.events
        assert not [node.path for node in rank.nodes if "module" in node.path or "wrapped" in node.path]
        for step in range(2):
            seen = sites(rank, step)
            for parameter in ("embed.weight", "head.weight", "layers.0.mlp.up.weight", "norm.weight"):
                for place in ("forward parameter", "update gradient", "update parameter"):
                    assert f"{place} {parameter}" in seen, (place, parameter)
                assert f"backward gradient {parameter}" in seen or "compiled" in name
                assert f"reduce gradient {parameter}" in seen
                ((_, layout),) = seen[f"forward parameter {parameter}"]
                is_empty = 0 in layout.shape
                assert (f"update state {parameter}.exp_avg" in seen) == (not is_empty), "none is kept of no elements"


@pytest.mark.parametrize("way", ["fsdp2", "fsdp1"])
def test_formats_follow_the_precision_policy(way, runs):
    rank = runs[f"{way} in bf16, checkpointed"].rank(0)
    seen = sites(rank)
    formats = {place: {dtype for dtype, _ in found} for place, found in seen.items()}
    assert formats["forward output layers.0.mlp.up.0"] == {"bf16"}
    assert formats["backward gradient layers.0.mlp.up.weight"] == {"bf16"}
    assert formats["forward derived layers.0.mlp.up.weight.gathered"] == {"bf16"}
    for place in ("forward parameter", "reduce gradient", "update gradient", "update parameter"):
        assert formats[f"{place} layers.0.mlp.up.weight"] == {"fp32"}
    assert len(seen["backward gradient layers.0.mlp.up.weight"]) == 1, "recomputing gives no second gradient"
    assert "recompute output layers.0.mlp.up.0" in seen
    assert "backward gradient norm.bias" not in seen
    assert "update gradient norm.bias" not in seen
    assert facts(rank, "parallel")["param_dtype"] == "bfloat16"


def test_states_and_updated_parameters_lie_as_the_shard_does(runs):
    for name in CASES:
        rank = runs[name].rank(1)
        seen = sites(rank)
        for parameter in ("embed.weight", "layers.1.mlp.up.weight"):
            ((_, layout),) = seen[f"forward parameter {parameter}"]
            for place in ("reduce gradient", "update gradient", "update parameter"):
                assert [found for _, found in seen[f"{place} {parameter}"]] == [layout], (name, place)
            if 0 not in layout.shape:
                assert [found for _, found in seen[f"update state {parameter}.exp_avg"]] == [layout], name


def test_a_parameter_that_is_not_sharded_is_a_replica(runs):
    for name, axis in (("fsdp1 not sharded", "dp"), ("ddp into buckets, scaled", "dp")):
        ((_, layout),) = sites(runs[name].rank(1))["forward parameter embed.weight"]
        assert [(p.axis, p.kind) for p in layout.placements] == [(axis, "replicate")]
        assert layout.is_whole


def test_a_compiled_block_under_fully_shard_is_a_gap_and_its_gradients_are_reduced_in_the_open(runs):
    rank = runs["fsdp2 with compiled blocks"].rank(0)
    assert {event.node for event in rank.events if event.kind == "gap"} >= {"layers.0", "layers.1"}
    assert "reduce gradient layers.0.mlp.up.weight" in sites(rank)


def test_the_scale_of_a_loss_is_a_fact(runs):
    rank = runs["ddp into buckets, scaled"].rank(0)
    values = [fact.value for fact in rank.facts if (fact.kind, fact.name) == ("gradient", "loss_scale")]
    assert values == [1024.0]
