"""A toy diffusion step: noise is drawn, a network with tensor parallelism takes it away again, step by step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from tests.parallel.transformer import named_weight

if TYPE_CHECKING:
    from tests.parallel.launching import Rank

WIDTH, HIDDEN, STEPS = 8, 16, 3


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.act = nn.Linear(WIDTH, HIDDEN, bias=False), nn.GELU()
        self.down = nn.Linear(HIDDEN, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(self.act(self.up(self.norm(x))))


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.text = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(4))

    def forward(self, latent: Tensor, prompt: Tensor) -> Tensor:
        x = latent + self.text(prompt)
        for layer in self.layers:
            x = layer(x)
        return x


def denoise(rank: Rank) -> None:
    """Draws the initial noise on each rank: from one seed, or with the fault from the rank's own."""
    model = Denoiser()
    for name, parameter in model.named_parameters():
        parameter.data.copy_(named_weight(name, parameter))
    if rank.world > 1:
        plan: dict[str, Any] = {}
        for number in range(4):
            plan |= {f"layers.{number}.up": ColwiseParallel(), f"layers.{number}.down": RowwiseParallel()}
        parallelize_module(model, init_device_mesh("cpu", (rank.world,), mesh_dim_names=("tp",)), plan)
    torch.manual_seed(rank.rank if rank.fault == "noise by rank" else 0)
    latent = torch.randn(2, 4, WIDTH)
    prompt = torch.linspace(-1, 1, 2 * 4 * WIDTH).reshape(2, 4, WIDTH)
    with rank.record(model) as probe, torch.no_grad():
        for _ in range(STEPS):
            latent = latent - 0.1 * model(latent, prompt)
            probe.step()
