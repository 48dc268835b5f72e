"""Two runs of one model with batches of other sizes, or other names of parameters: neither is called a fault."""

from __future__ import annotations

import torch
from torch import nn

import msprobe


def record(path, samples):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4))
    inputs = torch.randn(8, 8)[:samples]
    with msprobe.record(model, path):
        model(inputs).square().mean().backward()
    return path


def test_a_norm_is_no_source_where_only_its_weight_could_be_judged(tmp_path):
    comparison = msprobe.compare(record(tmp_path / "half", 4), record(tmp_path / "whole", 8))
    pairs = comparison.pairs
    assert comparison.summary.verdict == "inconclusive", comparison.summary.sentence
    norm = (pairs["candidate_node"] == "1") & (pairs["role"] == "gradient")
    assert set(pairs["verdict"][norm]) == {"inconclusive"}
    assert set(pairs["verdict"][pairs["role"] == "parameter"]) == {"equal"}


class Norm(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.register_parameter(name, nn.Parameter(torch.linspace(0.5, 1.5, 16)))
        self.name = name

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.get_parameter(self.name)


def record_norm(path, name):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), Norm(name), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(model.parameters())
    with msprobe.record(model, path, optimizer=optimizer, optimizer_state=True):
        for _ in range(2):
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return path


def test_the_one_parameter_left_of_a_node_is_that_of_the_other_side_by_another_name(tmp_path):
    comparison = msprobe.compare(record_norm(tmp_path / "scale", "scale"), record_norm(tmp_path / "weight", "weight"))
    summary = comparison.summary
    assert (summary.verdict, summary.coverage.matched_share) == ("clean", 1.0), summary.sentence
    assert not [finding for finding in summary.findings if finding.kind == "gradient"]
