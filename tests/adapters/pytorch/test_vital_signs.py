"""Routers of experts and eager attention, against a hand computation; what is not computed is not recorded."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import msprobe
from msprobe.adapters.pytorch.routing import derived


class Mixture(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 3, bias=False)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weight, chosen = self.gate(x).softmax(-1).max(-1)
        return torch.stack([w * self.experts[int(c)](row) for row, w, c in zip(x, weight, chosen, strict=True)])


class EagerAttention(nn.Module):
    def __init__(self, fused: bool = False) -> None:
        super().__init__()
        self.fused = fused

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = x.unflatten(-1, (2, -1)).transpose(1, 2)
        if self.fused:
            return nn.functional.scaled_dot_product_attention(q, q, q)
        scores = (q @ q.transpose(-1, -2)).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
        return nn.functional.softmax(scores, dim=-1, dtype=torch.float32) @ q


def _record(model: nn.Module, x: torch.Tensor, path: Any) -> None:
    options: Any = {"what": "statistics,tensors", "routing": True, "attention": True, "trace": False}
    with msprobe.record(model, path, **options) as probe:
        model(x)
        probe.step()


def test_a_router_of_logits(tmp_path, read):
    torch.manual_seed(0)
    model, x = nn.Sequential(Mixture()), torch.randn(6, 4)
    _record(model, x, tmp_path / "run")
    run = read(tmp_path / "run")
    mixture: Any = model[0]
    shares = mixture.gate(x).softmax(-1).detach()
    at = "0.gate|forward|derived|router"
    np.testing.assert_allclose(run.at(f"{at}.load|0").tensor, shares.mean(0), rtol=1e-5)
    entropy = -(shares * shares.log()).sum(-1)
    np.testing.assert_allclose(run.at(f"{at}.entropy|0").tensor, entropy, rtol=1e-5)
    rows = nn.functional.normalize(mixture.gate.weight.detach(), dim=1)
    expected = [max(float(rows[i] @ rows[j]) for j in range(3) if i != j) for i in range(3)]
    np.testing.assert_allclose(run.at(f"{at}.similarity|0").tensor, expected, rtol=1e-5)
    assert run.events == []


@pytest.mark.parametrize("form", ["indices", "map"])
def test_a_router_that_chooses(form):
    scores = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.6, 0.3, 0.1], [0.5, 0.3, 0.2]])
    chosen = torch.tensor([[0], [1], [0], [-1]])
    result = chosen if form == "indices" else torch.tensor([[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 0]]).bool()
    found = dict(derived([scores, result], None))
    torch.testing.assert_close(found["load"], torch.tensor([2 / 3, 1 / 3, 0.0]))
    torch.testing.assert_close(found["entropy"], -(scores * scores.log()).sum(-1))
    if form == "indices":
        assert found["dropped_tokens"].tolist() == [1]


def test_eager_attention_shows_entropy_and_logits_and_fused_attention_nothing(tmp_path, read):
    torch.manual_seed(0)
    x = torch.randn(3, 5, 8)
    _record(nn.Sequential(EagerAttention()), x, tmp_path / "eager")
    run = read(tmp_path / "eager")
    q = x.unflatten(-1, (2, -1)).transpose(1, 2)
    scores = (q @ q.transpose(-1, -2)).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
    weights = scores.softmax(-1)
    entropy = torch.special.entr(weights).sum(-1).mean((0, 2))
    np.testing.assert_allclose(run.at("0|forward|derived|attention.entropy|0").tensor, entropy, rtol=1e-5)
    largest = scores.amax((0, 2, 3))
    np.testing.assert_allclose(run.at("0|forward|derived|attention.max_logit|0").tensor, largest, rtol=1e-6)
    _record(nn.Sequential(EagerAttention(fused=True)), x, tmp_path / "fused")
    assert not [place for place in read(tmp_path / "fused").places(0) if "derived" in place]


def test_what_was_wrapped_is_put_back(tmp_path):
    before = nn.functional.softmax, torch.softmax, torch.distributed.all_reduce
    probe = msprobe.monitor(nn.Linear(2, 2), out=tmp_path / "run")
    assert nn.functional.softmax is not before[0]
    probe.close()
    assert (nn.functional.softmax, torch.softmax, torch.distributed.all_reduce) == before
