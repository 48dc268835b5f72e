"""A module that is called more often on one side: the calls that belong together pair, forward and backward."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import msprobe


class Model(nn.Module):
    """Calls one block several times; the first call may be extra, and a module before it may be missing."""

    def __init__(self, *, with_stem: bool, extra: int | None) -> None:
        super().__init__()
        self.extra = extra
        if with_stem:
            self.stem = nn.Linear(8, 8)
            nn.init.eye_(self.stem.weight)
            nn.init.zeros_(self.stem.bias)
        self.block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.head = nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x) if hasattr(self, "stem") else x
        for call in range(3):
            if call == self.extra:
                x = x + 0 * self.block(3 * x)
            x = x + (call + 1) * self.block(x)
        if self.extra == 3:
            x = x + 0 * self.block(3 * x)
        return self.head(x)


def record(path, *, with_stem: bool, extra: int | None):
    torch.manual_seed(0)
    block, head = nn.Linear(8, 8), nn.Linear(8, 1)
    model = Model(with_stem=with_stem, extra=extra)
    model.block[0].load_state_dict(block.state_dict())
    model.head.load_state_dict(head.state_dict())
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
    with msprobe.record(model, path):
        model(x).sum().backward()
    return path


@pytest.mark.parametrize("extra", [0, 1, 2, 3])
def test_the_right_calls_pair(tmp_path, extra):
    three = record(tmp_path / "three", with_stem=False, extra=None)
    four = record(tmp_path / "four", with_stem=True, extra=extra)
    pairs = msprobe.compare(three, four).pairs
    expected = [call for call in range(4) if call != extra]
    for node in ("block", "block.0", "block.1"):
        for direction, role in (("forward", "output"), ("backward", "input")):
            rows = (pairs["candidate_node"] == node) & (pairs["direction"] == direction) & (pairs["role"] == role)
            calls = sorted(zip(pairs["candidate_call"][rows], pairs["reference_call"][rows], strict=True))
            assert calls == list(zip(range(3), expected, strict=True)), (node, direction)
            assert set(pairs["verdict"][rows]) <= {"equal", "normal"}
    only = pairs["reference_node"][(pairs["verdict"] == "unmatched") & (pairs["candidate_node"] == "")]
    assert set(only) == {"stem", "block", "block.0", "block.1"}
