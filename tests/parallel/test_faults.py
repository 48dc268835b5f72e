"""A fault seeded in one layout is found at its place, and named with rank and axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison


def first(result: Comparison) -> str:
    """Gives the first source in words: node, direction, role, argument."""
    assert result.summary.verdict == "introduced"
    source = result.summary.sources[0]
    return f"{source.node}|{source.direction}|{source.role}|{source.argument}"


def findings(result: Comparison, kind: str) -> str:
    return "\n".join(finding.text for finding in result.summary.findings if finding.kind == kind)


def evidence(result: Comparison) -> str:
    return "\n".join(result.summary.sources[0].evidence)


def test_a_sum_that_is_not_reduced_is_found_where_it_is_used(runs):
    result = runs.compared("tp2", "no all-reduce")
    assert first(result) == "layers.2|forward|output|0"
    assert result.summary.sources[0].own_code
    assert "rank 1 (tp 1) differs from rank 0 (tp 0) along axis tp, first at the forward output 0 of layers.2," in (
        findings(result, "replica")
    )


@pytest.mark.long
def test_shards_in_the_wrong_order_are_a_wrong_weight(runs):
    result = runs.compared("tp2", "shards swapped")
    assert first(result) == "layers.1.attention.q|forward|parameter|weight"


@pytest.mark.long
@pytest.mark.parametrize("name", ["tp2", "tp2 sp", "cp2"])
def test_a_replica_of_a_weight_that_differs_is_named_with_its_rank(runs, name):
    result = runs.compared(name, "replica perturbed")
    axis = name[:2]
    assert first(result) == "layers.3.mlp_norm|forward|parameter|weight"
    assert result.summary.sources[0].rank == 1
    assert f"rank 1 ({axis} 1) differs from rank 0 ({axis} 0) along axis {axis}, first at the forward parameter" in (
        findings(result, "replica")
    )


def test_dropout_that_each_rank_draws_for_itself_is_found(runs):
    result = runs.compared("tp2", "seed by rank", dropout=0.2)
    assert first(result).startswith("drop|forward|output")
    assert "rank 1 (tp 1) differs from rank 0 (tp 0) along axis tp, first at the forward output 0 of drop," in (
        findings(result, "replica")
    )


def test_gradients_of_norms_that_are_not_summed_over_the_sequence_are_found(runs):
    result = runs.compared("megatron tp2 sp", "norm gradients not reduced")
    assert first(result) == "|update|gradient|weight"
    assert "never summed over the ranks along axis tp (layers.0.attention_norm)" in findings(result, "unreduced")
    assert "along axis tp, first at the update gradient weight of layers.0.attention_norm" in findings(
        result, "replica"
    )


def test_a_gradient_scaled_by_the_size_of_an_axis_is_told_with_factor_and_axis(runs):
    result = runs.compared("cp2", "gradients summed")
    assert first(result) == "|update|gradient|weight"
    assert "exactly 2 times the reference, the number of ranks along axis cp" in evidence(result)


@pytest.mark.long
def test_a_norm_gradient_that_is_summed_twice_is_told_with_factor_and_axis(runs):
    result = runs.compared("megatron tp2 sp", "norm gradients reduced twice")
    assert first(result) == "|update|gradient|weight"
    assert "exactly 2 times the reference, the number of ranks along axis tp" in evidence(result)


@pytest.mark.long
def test_keys_out_of_order_are_found_in_the_attention_that_mixes_them(runs):
    assert first(runs.compared("cp2", "keys out of order")) == "layers.3.attention.attend|forward|output|0"


@pytest.mark.long
def test_a_weight_of_the_wrong_stage_is_found_in_its_stage(runs):
    result = runs.compared("vpp2", "wrong weight")
    assert first(result) == "layers.5.mlp_norm|forward|parameter|weight"
    assert "stage" not in result.summary.sources[0].node


def test_an_expert_without_tokens_that_gives_nan_is_found_in_its_layer(runs):
    few = {"batch": 2, "sequence": 2}
    result = runs.compared("ep2", "expert without tokens", reference="moe", **few)
    assert first(result) == "layers.0.mlp|forward|output|0"
    assert result.summary.sources[0].own_code
    assert result.pairs["candidate_nan"][result.summary.sources[0].row] > 0


def test_noise_that_each_rank_draws_for_itself_is_found_at_the_input(runs):
    result = runs.compared("diffusion tp4", "noise by rank", reference="diffusion")
    assert first(result) == "|forward|input|0"
    assert len(result.summary.sources) == 1
    assert "rank 1 (tp 1)" in findings(result, "replica")
    introduced = {result.pairs["candidate_node"][row] for row in result.rows("introduced")}
    assert not any(node.startswith("layers") for node in introduced)


def test_the_same_noise_on_every_rank_is_clean(runs):
    result = runs.compared("diffusion tp4", reference="diffusion")
    assert result.summary.verdict == "clean"
