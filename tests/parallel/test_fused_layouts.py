"""Mapping and merging together: fused layers in one process against their parts, each cut over two ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import msprobe
from msprobe.core.mapping_runs import propose_text
from tests.parallel.transformer import Config, attend, make_model, rotate, train


class FusedAttention(nn.Module):
    def __init__(self, attention: Any) -> None:
        super().__init__()
        self.head_width = attention.head_width
        self.qkv = fused(attention.q, attention.k, attention.v)
        self.attend, self.o = attention.attend, attention.o

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        parts = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (-1, self.head_width)).transpose(1, 2) for part in parts)
        mixed = attend(rotate(q, positions), rotate(k, positions), v, positions, positions)
        return self.o(mixed.transpose(1, 2).flatten(2))


class FusedFeedForward(nn.Module):
    def __init__(self, mlp: Any) -> None:
        super().__init__()
        self.gate_up = fused(mlp.gate, mlp.up)
        self.act, self.down = mlp.act, mlp.down

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(self.act(gate) * up)


def fused(*parts: nn.Linear) -> nn.Linear:
    made = nn.Linear(parts[0].in_features, sum(part.out_features for part in parts), bias=False)
    made.weight.data.copy_(torch.cat([part.weight.data for part in parts]))
    return made


def test_fused_layers_compare_with_parts_that_are_cut_over_ranks(runs, tmp_path):
    config = Config()
    model: Any = make_model(config)
    for block in model.layers.values():
        block.attention, block.mlp = FusedAttention(block.attention), FusedFeedForward(block.mlp)
    with msprobe.record(model, tmp_path / "fused", what="statistics,sketch,checksums") as probe:
        train(model, config, probe)
    cut = runs("tp2")
    comparison = msprobe.compare(tmp_path / "fused", cut)
    assert comparison.summary.counts["introduced"] == comparison.summary.counts["suspect"] == 0
    pairs = comparison.pairs
    qkv = pairs["candidate_node"] == "layers.3.attention.qkv"
    assert set(pairs["reference_node"][qkv]) == {"layers.3.attention.q+k+v"}
    weight = qkv & (pairs["role"] == "parameter") & (pairs["direction"] == "forward") & (pairs["step"] == 0)
    assert list(pairs["verdict"][weight]) == ["equal"]
    file = tmp_path / "layers.yaml"
    file.write_text(propose_text(tmp_path / "fused", cut)[1])
    given = msprobe.compare(cut, tmp_path / "fused", mapping=file, swap=True)
    assert given.summary.counts == comparison.summary.counts
