"""Ready mappings: chosen by themselves where they fit, or by name; also from another package."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

import msprobe
from msprobe.core.errors import MsprobeError
from msprobe.core.matching.mapping_file import parse_mapping
from msprobe.core.matching.ready import HF_MEGATRON, HF_VLLM, ReadyMapping, fit
from msprobe.core.sites import Node, NodeKind
from msprobe.plugins import plugin_table
from tests.mapping.twins import FusedDecoder, small_decoder, train

#: Names of the fused decoder -> those of Megatron.
MEGATRON = {
    "embedding": "embedding.word_embeddings",
    r"decoder\.blocks\.(\d+)": r"decoder.layers.\1",
    r"\.input_norm": ".input_layernorm",
    r"\.pre_mlp_norm": ".pre_mlp_layernorm",
    r"\.ffn": ".mlp",
    "final_norm": "final_layernorm",
    "rotary": "rotary_pos_emb",
}


class Renamed(nn.Module):
    """A model under names of another house: its modules are registered anew, its code stays."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.inner = [model]
        for name, module in model.named_modules():
            path = name
            for old, new in MEGATRON.items():
                path = re.sub(old, new, path)
            if name and not list(module.children()):
                self._place(path, module)

    def _place(self, path: str, module: nn.Module) -> None:
        *heads, last = path.split(".")
        at: nn.Module = self
        for head in heads:
            if head not in at._modules:
                at.add_module(head, nn.Module())
            at = at.get_submodule(head)
        at.add_module(last, module)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.inner[0](tokens)


@pytest.fixture(scope="module")
def megatron(tmp_path_factory):
    """A recording of a model with Megatron's names whose weights are those of no other."""
    torch.manual_seed(7)
    model = small_decoder()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.05)
    renamed = Renamed(FusedDecoder(model, interleaved=True))
    for layer in range(2):
        projection = renamed.get_submodule(f"decoder.layers.{layer}.self_attention.linear_qkv")
        projection.__dict__["num_query_groups"] = 2
    path = tmp_path_factory.mktemp("megatron") / "run"
    with msprobe.record(renamed, path):
        train(renamed, 1)
    return path


def reason_of(comparison, node):
    pairs = comparison.pairs
    rows = (pairs["candidate_node"] == node) & (pairs["match_reason"] != "")
    return str(pairs["match_reason"][rows][0])


def test_names_of_megatron_and_transformers_are_known(record, megatron):
    comparison = msprobe.compare(megatron, record("parts"))
    qkv = "decoder.layers.1.self_attention.linear_qkv"
    assert reason_of(comparison, qkv).startswith("mapping, ready mapping hf-megatron:")
    assert "interleave of 2 groups" in reason_of(comparison, qkv)
    named = dict(zip(comparison.pairs["candidate_node"], comparison.pairs["reference_node"], strict=True))
    assert named["decoder.layers.0.pre_mlp_layernorm"] == "model.layers.0.post_attention_layernorm"


def test_a_ready_mapping_is_known_by_name_in_both_directions(record, megatron):
    for runs in ((megatron, record("parts")), (record("parts"), megatron)):
        pairs = msprobe.compare(*runs, mapping="hf-megatron").pairs
        ends = set(zip(pairs["candidate_node"], pairs["reference_node"], strict=True))
        assert {("output_layer", "lm_head"), ("lm_head", "output_layer")} & ends
    with pytest.raises(MsprobeError, match=r"unknown mapping .hf-megatrn.*Did you mean .hf-megatron"):
        msprobe.compare(megatron, record("parts"), mapping="hf-megatrn")
    with pytest.raises(MsprobeError, match="ready mapping hf-vllm: none of its rules"):
        msprobe.compare(megatron, megatron, mapping="hf-vllm")


def modules(*paths):
    return [Node(path, NodeKind.MODULE, "Linear", path.rpartition(".")[0]) for path in paths]


def test_a_set_fits_in_one_direction_and_leaves_out_what_is_not_there():
    head = "model.layers.0.self_attn"
    fused, parts = modules(f"{head}.qkv_proj"), modules(*(f"{head}.{name}_proj" for name in "qkv"))
    fitting = fit(HF_VLLM.mapping, fused, parts)
    assert fitting.explained == 1
    assert len(fitting.mapping.rules) == 1
    assert fit(HF_VLLM.mapping, parts, fused).explained == 0
    assert fit(HF_VLLM.mapping.swapped(), parts, fused).explained == 3


@pytest.mark.parametrize("plugin", plugin_table().of_kind("mappings"), ids=lambda p: p.name)
def test_every_ready_mapping_is_well_formed(plugin):
    ready = plugin_table().get("mappings", plugin.name)
    assert ready.mapping.rules
    assert ready.name == plugin.name


def test_content_goes_before_a_ready_mapping(record):
    """Where the numbers are the same they say more than names."""
    comparison = msprobe.compare(record("interleaved"), record("parts"))
    assert "content" in reason_of(comparison, "decoder.blocks.0.self_attention.linear_qkv")


def test_mistakes_in_a_ready_mapping_name_it():
    with pytest.raises(MsprobeError, match="ready mapping mine:3: the rule lacks 'reference'"):
        _ = ReadyMapping("mine", "version: 1\nrules:\n  - candidate: a\n").mapping
    assert HF_MEGATRON.mapping.is_ready
    assert not parse_mapping("version: 1\nrules: []\n", "x").is_ready
