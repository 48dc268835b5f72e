"""Inputs moved by one rounding."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from msprobe.adapters.pytorch.perturb import Perturbation, moved_by_one_rounding


def _generator(seed=1):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_every_element_goes_to_a_neighbour(dtype):
    x = torch.randn(1000, dtype=torch.float64).to(dtype)
    moved = moved_by_one_rounding(x, _generator())
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    steps = moved.view(bits).long() - x.view(bits).long()
    assert set(steps.tolist()) == {-1, 1}


def test_zeros_and_non_finite_elements_stay():
    x = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), torch.finfo(torch.float32).max])
    moved = moved_by_one_rounding(x, _generator())
    assert torch.isfinite(moved).tolist() == [True, True, False, False, False, True]
    assert moved[:4].equal(x[:4])


def test_gradients_pass_unchanged():
    x = torch.randn(4, requires_grad=True)
    moved_by_one_rounding(x, _generator()).mul(3).sum().backward()
    assert x.grad is not None
    assert x.grad.equal(torch.full((4,), 3.0))


def test_the_same_seed_moves_alike_and_leaves_the_global_generator_alone():
    x, state = torch.randn(50), torch.get_rng_state()
    first, again, other = (moved_by_one_rounding(x, _generator(seed)) for seed in (1, 1, 2))
    assert first.equal(again)
    assert not first.equal(other)
    assert torch.get_rng_state().equal(state)


def test_float_inputs_are_moved_and_integers_are_not():
    seen = []

    class Model(nn.Module):
        def forward(self, x, index, *, extra):
            seen.append((x, index, extra["y"]))

    model, x, index = Model(), torch.ones(3), torch.arange(3)
    perturbation = Perturbation({"": model}, seed=1)
    model(x, index, extra={"y": x})
    perturbation.remove()
    model(x, index, extra={"y": x})
    assert not seen[0][0].equal(x)
    assert seen[0][1] is index
    assert not seen[0][2].equal(x)
    assert seen[1][0] is x


def test_token_ids_move_the_embeddings_instead():
    model = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 2))
    ids = torch.arange(5)
    plain = model[0](ids)
    perturbation = Perturbation({"": model}, seed=1)
    seen = []
    model[1].register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    model(ids)
    perturbation.remove()
    assert not seen[0].equal(plain)
    torch.testing.assert_close(seen[0], plain, rtol=2e-7, atol=0)
    assert not model._forward_pre_hooks
