"""Several nodes that are one on the other side compare as one: a fused decoder against the same one in parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch

import msprobe
from msprobe.core.errors import MappingError
from tests.mapping.twins import small_decoder, train

if TYPE_CHECKING:
    from pathlib import Path

RULES = """\
version: 1
candidate: {framework: pytorch, model: FusedDecoder}
reference: {framework: pytorch, model: LlamaForCausalLM}
rules:
  - {candidate: embedding, reference: model.embed_tokens}
  - {candidate: "decoder.blocks.{i}", reference: "model.layers.{i}"}
  - {candidate: "decoder.blocks.{i}.input_norm", reference: "model.layers.{i}.input_layernorm"}
  - {candidate: "decoder.blocks.{i}.pre_mlp_norm", reference: "model.layers.{i}.post_attention_layernorm"}
  - {candidate: "decoder.blocks.{i}.self_attention", reference: "model.layers.{i}.self_attn"}
  - {candidate: "decoder.blocks.{i}.self_attention.linear_proj", reference: "model.layers.{i}.self_attn.o_proj"}
  - {candidate: "decoder.blocks.{i}.ffn", reference: "model.layers.{i}.mlp"}
  - {candidate: "decoder.blocks.{i}.ffn.linear_fc2", reference: "model.layers.{i}.mlp.down_proj"}
  - {candidate: decoder.final_norm, reference: model.norm}
  - {candidate: output_layer, reference: lm_head}
  - {candidate: rotary, reference: model.rotary_emb}
  - candidate: decoder.blocks.{i}.ffn.linear_fc1
    reference: [model.layers.{i}.mlp.gate_proj, model.layers.{i}.mlp.up_proj]
    combine: {concat: -1}
  - candidate: decoder.blocks.{i}.self_attention.linear_qkv
    reference: [model.layers.{i}.self_attn.q_proj, model.layers.{i}.self_attn.k_proj, model.layers.{i}.self_attn.v_proj]
    combine: QKV
"""
PLAIN, BY_GROUP = "{concat: -1}", "{interleave: {dim: 0, groups: num_query_groups}}"


@pytest.fixture
def rules(tmp_path):
    def write(qkv: str) -> Path:
        path: Path = tmp_path / "layers.yaml"
        path.write_text(RULES.replace("QKV", qkv))
        return path

    return write


def of_node(comparison, name, **where):
    """Gives the rows of a node of the candidate."""
    pairs = comparison.pairs
    rows = pairs["candidate_node"] == name
    for column, value in where.items():
        rows &= pairs[column] == value
    return {column: values[rows] for column, values in pairs.items()}


@pytest.mark.parametrize(("kind", "qkv"), [("fused", PLAIN), ("interleaved", BY_GROUP)])
@pytest.mark.parametrize("what", ["statistics,sketch", "tensors"])
def test_a_fused_decoder_agrees_with_its_parts(record, rules, kind, qkv, what):
    comparison = msprobe.compare(record(kind, what), record("parts", what), mapping=rules(qkv))
    assert comparison.summary.exit_code == 0
    fused = of_node(comparison, "decoder.blocks.1.self_attention.linear_qkv")
    assert set(fused["reference_node"]) == {"model.layers.1.self_attn.q_proj+k_proj+v_proj"}
    assert set(fused["direction"]) >= {"forward", "backward", "update"}
    assert set(fused["verdict"]) <= {"equal", "normal"}
    assert (fused["error"] < 1e-5).all()
    first = (fused["role"] == "parameter") & (fused["step"] == 0)
    assert list(fused["verdict"][first]) == ["equal"]
    if what == "tensors":
        assert set(fused["error_kind"]) == {"tensor", "checksum"}
    assert "layers.yaml:19: " in fused["match_reason"][0]


def test_the_file_works_in_both_directions(record, rules):
    forth = msprobe.compare(record("fused"), record("parts"), mapping=rules(PLAIN))
    back = msprobe.compare(record("parts"), record("fused"), mapping=rules(PLAIN), swap=True)
    assert forth.summary.counts == back.summary.counts
    names = [set(zip(c.pairs["candidate_node"], c.pairs["reference_node"], strict=True)) for c in (forth, back)]
    assert names[0] == {(b, a) for a, b in names[1]}


def test_a_wrong_order_of_groups_is_a_difference_of_the_parameters(record, rules):
    """Without any tensor: the row sums of the weight stand in another order."""
    comparison = msprobe.compare(record("interleaved"), record("parts"), mapping=rules(PLAIN))
    assert comparison.summary.exit_code == 1
    weight = of_node(comparison, "decoder.blocks.0.self_attention.linear_qkv", role="parameter", step=0)
    assert list(weight["verdict"]) == ["introduced"]
    assert list(weight["error_kind"]) == ["order"]
    assert 0.5 < weight["error"][0] < 2


def test_a_fault_in_one_part_is_found_in_statistics(record, rules, tmp_path):
    model = small_decoder()
    with torch.no_grad():
        model.model.layers[1].self_attn.k_proj.weight[0] *= 1.5
    with msprobe.record(model, tmp_path / "faulty"):
        train(model, 2)
    comparison = msprobe.compare(tmp_path / "faulty", record("fused"), mapping=rules(PLAIN), swap=True)
    (source, *_) = comparison.summary.sources
    assert source.node == "model.layers.1.self_attn.q_proj+k_proj+v_proj"
    assert source.role == "parameter"


def test_biases_are_joined_as_well(record, rules):
    comparison = msprobe.compare(record("fused", family="qwen2"), record("parts", family="qwen2"), mapping=rules(PLAIN))
    bias = of_node(comparison, "decoder.blocks.0.self_attention.linear_qkv", argument="bias", step=0, role="parameter")
    assert list(bias["verdict"]) == ["equal"]


def test_operators_of_parts_are_joined_where_the_whole_has_them(record, rules):
    runs = [record(kind, level="mix") for kind in ("fused", "parts")]
    comparison = msprobe.compare(*runs, mapping=rules(PLAIN))
    products = of_node(comparison, "decoder.blocks.0.self_attention.linear_qkv/aten.mm.default", role="output", step=0)
    assert len(products["verdict"])
    assert set(products["verdict"]) <= {"equal", "normal"}


def test_a_transform_that_does_not_fit_the_shapes_is_refused(record, rules):
    path = rules("{interleave: {dim: 0, groups: 5}}")
    with pytest.raises(
        MappingError, match=r"layers.yaml:19: interleave of 5 groups of .*v_proj makes no 64x32: .*32x32"
    ):
        msprobe.compare(record("fused"), record("parts"), mapping=path)


def test_groups_that_no_scalar_names_are_asked_for(record, rules):
    qkv = BY_GROUP.replace("num_query_groups", "num_of_groups")
    with pytest.raises(MappingError, match=r"layers.yaml:19: neither run has recorded a scalar .num_of_groups"):
        msprobe.compare(record("interleaved"), record("parts"), mapping=rules(qkv))


class Turned(torch.nn.Module):
    """A layer that keeps its weight as (in, out)."""

    def __init__(self, layer: torch.nn.Linear) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(layer.weight.detach().T.contiguous())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def test_transposed_weights_compare(tmp_path):
    torch.manual_seed(0)
    layer = torch.nn.Linear(8, 8, bias=False)
    for name, model in (("turned", torch.nn.Sequential(Turned(layer))), ("plain", torch.nn.Sequential(layer))):
        torch.manual_seed(1)
        with msprobe.record(model, tmp_path / name, what="statistics,sketch,tensors"):
            model(torch.randn(4, 8)).square().sum().backward()
    path = tmp_path / "layers.yaml"
    path.write_text('version: 1\nrules:\n  - {candidate: "0", reference: "0", combine: {transpose: [0, 1]}}\n')
    comparison = msprobe.compare(tmp_path / "turned", tmp_path / "plain", mapping=path)
    assert comparison.summary.exit_code == 0
    gradient = of_node(comparison, "0", role="gradient")
    assert len(gradient["verdict"])
    assert np.all(gradient["error"] < 1e-6)
