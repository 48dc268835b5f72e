"""Two implementations of one model are matched without a file, and the proposed file gives the same back."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch
import transformers

import msprobe
from msprobe.cli import main
from msprobe.core.mapping_runs import propose_mapping, propose_text
from msprobe.core.matching.mapping_file import read_mapping
from tests.mapping.twins import FusedDecoder, small_decoder, train


def names_of(comparison):
    """Gives the pairs of nodes of a comparison."""
    pairs = comparison.pairs
    return set(zip(pairs["candidate_node"], pairs["reference_node"], strict=True))


EXPECTED = {
    ("embedding", "model.embed_tokens"),
    ("decoder", "model"),
    ("decoder.blocks.1", "model.layers.1"),
    ("decoder.blocks.1.self_attention.linear_qkv", "model.layers.1.self_attn.q_proj+k_proj+v_proj"),
    ("decoder.blocks.1.self_attention.linear_proj", "model.layers.1.self_attn.o_proj"),
    ("decoder.blocks.1.ffn.linear_fc1", "model.layers.1.mlp.gate_proj+up_proj"),
    ("decoder.blocks.1.ffn.linear_fc2", "model.layers.1.mlp.down_proj"),
    ("decoder.blocks.1.ffn.activation", "model.layers.1.mlp.act_fn"),
    ("decoder.blocks.1.pre_mlp_norm", "model.layers.1.post_attention_layernorm"),
    ("decoder.final_norm", "model.norm"),
    ("output_layer", "lm_head"),
    ("rotary", "model.rotary_emb"),
}


@pytest.mark.parametrize(("family", "kind"), [("llama", "fused"), ("qwen2", "interleaved")])
def test_fused_implementations_compare_without_a_file(record, family, kind):
    runs = record(kind, family=family), record("parts", family=family)
    comparison = msprobe.compare(*runs)
    assert comparison.summary.exit_code == 0
    assert names_of(comparison) >= EXPECTED
    assert all(a.count(".1.") == b.count(".1.") for a, b in names_of(comparison) if a and b)
    proposal = propose_mapping(*runs)
    assert proposal.paired == proposal.modules
    assert proposal.left_reference == ()


def test_the_proposed_file_gives_the_same_pairs_in_both_directions(record, tmp_path):
    runs = record("interleaved", family="qwen2"), record("parts", family="qwen2")
    file = tmp_path / "layers.yaml"
    assert main(["map", *map(str, runs), "-o", str(file)]) == 0
    alone = msprobe.compare(*runs)
    given = msprobe.compare(*runs, mapping=file)
    back = msprobe.compare(*runs[::-1], mapping=file, swap=True)
    assert names_of(given) == names_of(alone)
    assert {(b, a) for a, b in names_of(back)} == names_of(alone)
    assert back.summary.counts == given.summary.counts == alone.summary.counts
    qkv = given.pairs["candidate_node"] == "decoder.blocks.0.self_attention.linear_qkv"
    assert "interleave of 2 groups" in given.pairs["match_reason"][qkv][0]


def test_a_file_that_is_there_is_not_overwritten(record, tmp_path, capsys):
    file = tmp_path / "layers.yaml"
    file.write_text("mine")
    assert main(["map", str(record("fused")), str(record("parts")), "-o", str(file)]) == 2
    assert "--force" in capsys.readouterr().err
    assert file.read_text() == "mine"


def test_rules_are_general_and_say_why(record):
    _, text = propose_text(record("fused"), record("parts"))
    assert 'candidate: "decoder.blocks.{i}.ffn.linear_fc1"' in text
    assert "# 0.95: concat: rows of the parts in order (content)" in text
    assert ".0." not in text


def test_models_that_were_trained_apart_are_matched_by_shapes_and_order(record, tmp_path):
    """Nothing is equal: neither names nor numbers."""
    torch.manual_seed(5)
    other = small_decoder()
    for parameter in other.parameters():
        torch.nn.init.normal_(parameter, std=0.05)
    model = FusedDecoder(other)
    with msprobe.record(model, tmp_path / "apart"):
        train(model, 1)
    comparison = msprobe.compare(tmp_path / "apart", record("parts"))
    assert names_of(comparison) >= EXPECTED
    fused = comparison.pairs["candidate_node"] == "decoder.blocks.1.self_attention.linear_qkv"
    assert set(comparison.pairs["match_confidence"][fused]) == {0.5}


def test_two_different_models_have_no_pairs_beyond_names(record, tmp_path):
    torch.manual_seed(0)
    config = transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=2, n_head=4)
    other = transformers.GPT2LMHeadModel(config)
    with msprobe.record(other, tmp_path / "gpt2"):
        train(other, 1)
    proposal = propose_mapping(tmp_path / "gpt2", record("parts"))
    pairs = {(rule.candidate, rule.reference) for rule in proposal.rules}
    assert not any("attn" in a[0] or "mlp" in a[0] for a, _ in pairs)


class Split(torch.nn.Module):
    """The attention's projections of GPT-2, apart, as linear layers."""

    def __init__(self, attention: Any) -> None:
        super().__init__()
        weights = attention.c_attn.weight.detach().T.chunk(3)
        biases = attention.c_attn.bias.detach().chunk(3)
        for name, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
            layer = torch.nn.Linear(weight.shape[1], weight.shape[0])
            layer.load_state_dict({"weight": weight, "bias": bias})
            self.add_module(name, layer)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.get_submodule(name)(x) for name in ("query", "key", "value")], dim=-1)


def test_weights_that_are_fused_and_transposed_are_recognised(tmp_path):
    config = transformers.GPT2Config(vocab_size=64, n_positions=16, n_embd=32, n_layer=1, n_head=4)
    attention: Any = transformers.GPT2LMHeadModel(config).transformer.h[0].attn
    torch.nn.init.normal_(attention.c_attn.bias)
    for name, model in (
        ("fused", torch.nn.Sequential(attention.c_attn)),
        ("split", torch.nn.Sequential(Split(attention))),
    ):
        torch.manual_seed(1)
        with msprobe.record(model, tmp_path / name):
            model(torch.randn(2, 5, 32)).square().sum().backward()
    _, text = propose_text(tmp_path / "fused", tmp_path / "split")
    assert 'reference: ["0.query", "0.key", "0.value"]' in text
    assert "combine: {concat: -1, transpose: [0, 1]}" in text
    (tmp_path / "layers.yaml").write_text(text)
    comparison = msprobe.compare(tmp_path / "fused", tmp_path / "split", mapping=tmp_path / "layers.yaml")
    assert set(comparison.pairs["verdict"]) <= {"equal", "normal", "unmatched"}


def test_content_that_is_not_unique_recognises_nothing(tmp_path):
    def norms(first: str, second: str) -> torch.nn.Module:
        layers: OrderedDict[str, torch.nn.Module] = OrderedDict()
        for name in (first, second):
            layers[name] = layer = torch.nn.Linear(4, 4)
            torch.nn.init.ones_(layer.weight)
            torch.nn.init.zeros_(layer.bias)
        return torch.nn.Sequential(layers)

    with msprobe.record(model := norms("p", "q"), tmp_path / "c"):
        model(torch.ones(1, 4))
    with msprobe.record(model := norms("r", "s"), tmp_path / "d"):
        model(torch.ones(1, 4))
    rules = propose_mapping(tmp_path / "c", tmp_path / "d").rules
    assert not any("content" in rule.note or "equal parameters" in rule.note for rule in rules)


def test_the_proposed_text_is_a_mapping_file(record, tmp_path):
    _, text = propose_text(record("parts"), record("fused"))
    file = tmp_path / "layers.yaml"
    file.write_text(text)
    rules = read_mapping(file).rules
    assert len(next(rule for rule in rules if len(rule.candidate) == 3).reference) == 1


def test_rows_in_another_order_are_followed(tmp_path):
    """As of rotary embeddings, whose pairs stand together in one implementation and half a head apart in the other."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(8, 12)
    order = torch.arange(12).view(2, 2, 3).transpose(1, 2).reshape(-1)
    other = torch.nn.Linear(8, 12)
    other.load_state_dict({"weight": layer.weight[order], "bias": layer.bias[order]})
    x = torch.randn(4, 8)
    for name, key, model in (("a", "rotated", other), ("b", "halves", layer)):
        layers: OrderedDict[str, torch.nn.Module] = OrderedDict([(key, model)])
        model_of_one = torch.nn.Sequential(layers)
        with msprobe.record(model_of_one, tmp_path / name, what="tensors,statistics"):
            model_of_one(x).square().sum().backward()
    _, text = propose_text(tmp_path / "a", tmp_path / "b")
    assert "combine: {order: content}" in text
    (tmp_path / "layers.yaml").write_text(text)
    for given in (None, tmp_path / "layers.yaml"):
        pairs = msprobe.compare(tmp_path / "a", tmp_path / "b", mapping=given).pairs
        rows = pairs["candidate_node"] == "rotated"
        assert set(pairs["verdict"][rows]) <= {"equal", "normal"}
        assert set(pairs["role"][rows]) >= {"parameter", "output"}
