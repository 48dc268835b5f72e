"""A vision transformer with a convolutional stem and a frozen BatchNorm, in plain PyTorch."""

from __future__ import annotations

import torch
from torch import nn

from benchmarks.precision.decoder import Block


class Stem(nn.Module):
    """Cuts an image into patches; its BatchNorm is frozen: it uses the statistics it was loaded with."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, hidden, 4, stride=4)
        self.norm = nn.BatchNorm2d(hidden)
        self.act = nn.GELU()
        assert self.norm.running_mean is not None
        assert self.norm.running_var is not None
        self.norm.running_mean.normal_(0, 0.1)
        self.norm.running_var.uniform_(0.5, 1.5)

    def train(self, mode: bool = True) -> Stem:  # noqa: FBT001, FBT002 (the signature of nn.Module)
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.act(self.norm(self.conv(pixels))).flatten(2).transpose(1, 2)
        return result


class VisionTransformer(nn.Module):
    """Class logits from images."""

    positions: torch.Tensor

    def __init__(self, *, hidden: int, layers: int, classes: int, patches: int = 16) -> None:
        super().__init__()
        self.stem = Stem(hidden)
        place = torch.arange(patches)[:, None] / 10000 ** (torch.arange(0, hidden, 2) / hidden)
        self.register_buffer("positions", torch.cat((place.sin(), place.cos()), dim=1))
        self.blocks = nn.ModuleList(Block(hidden, causal=False) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        x = self.place(self.stem(pixels))
        for block in self.blocks:
            x = block(x)
        result: torch.Tensor = self.head(self.norm(x).mean(1))
        return result

    def place(self, x: torch.Tensor, *, first: int = 0) -> torch.Tensor:
        """Adds the table of positions."""
        return x + self.positions.to(x.dtype).roll(-first, 0)
