"""Recording changes no bit: losses, gradients and weights are the same with and without it.

The model has what goes wrong elsewhere: branches, operators that work in place, a shared module, tied weights, both
kinds of activation checkpointing and dropout; training accumulates gradients, runs under autocast and skips steps by a
gradient scaler.
"""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import msprobe

EVERYTHING = "statistics,sketch,rows,checksums,tensors"
SKIPPED = (1, 4, 5)


class Block(nn.Module):
    def __init__(self, width: int, shared: nn.Module) -> None:
        super().__init__()
        self.norm, self.shared = nn.LayerNorm(width), shared
        self.up, self.act, self.down = nn.Linear(width, 2 * width), nn.ReLU(inplace=True), nn.Linear(2 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        hidden = self.shared(self.norm(x))
        hidden = self.down(self.act(self.up(hidden))).mul_(scale)
        return x + self.drop(hidden), {"hidden": hidden}


class Model(nn.Module):
    def __init__(self, width: int = 8, words: int = 13) -> None:
        super().__init__()
        shared = nn.Linear(width, width)
        self.embed = nn.Embedding(words, width)
        self.blocks = nn.ModuleList(Block(width, shared) for _ in range(4))
        self.statistics = nn.BatchNorm1d(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        x = self.embed(ids)
        x, extra = self.blocks[0](x)
        if self.training:
            x, _ = checkpoint(self.blocks[1], x, use_reentrant=True)
            x, _ = checkpoint(self.blocks[2], x, scale=0.5, use_reentrant=False)
        branch = self.blocks[3](x)[0] if float(ids.sum()) % 2 else x * 1.5
        branch += extra["hidden"]
        logits = self.head(self.statistics(branch.flatten(0, 1)))
        if labels is None:
            return {"logits": logits}
        return {"logits": logits, "loss": nn.functional.cross_entropy(logits, labels.flatten())}


def _train(steps: int, record) -> list[torch.Tensor]:
    """Trains and gives the bits of all losses, gradients, weights and buffers, and the last random number."""
    torch.manual_seed(1)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    kept = []
    with record(model) as probe:
        for step in range(steps):
            for _ in range(2):
                ids = torch.randint(0, 13, (2, 5))
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    loss = model(ids, labels=ids)["loss"]
                if step in SKIPPED:
                    loss = loss * float("inf")
                scaler.scale(loss).backward()
                kept.append(loss)
            scaler.step(optimizer)
            scaler.update()
            kept += [p.grad.clone() for p in model.parameters() if p.grad is not None]
            optimizer.zero_grad()
            if probe is not None:
                probe.step()
    return [*kept, *(p.clone() for p in model.parameters()), *model.buffers(), torch.rand(3)]


def _infer(record) -> list[torch.Tensor]:
    torch.manual_seed(2)
    model = Model().eval()
    kept = []
    with record(model) as probe:
        for _ in range(3):
            with torch.inference_mode():
                kept.append(model(torch.randint(0, 13, (2, 5)))["logits"].clone())
            if probe is not None:
                probe.step()
    return [*kept, torch.rand(3)]


def _assert_same_bits(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    assert len(ours) == len(theirs)
    for mine, yours in zip(ours, theirs, strict=True):
        assert mine.dtype == yours.dtype
        assert mine.detach().numpy().tobytes() == yours.detach().numpy().tobytes()


def _check_training(steps: int, tmp_path, read, level: str) -> None:
    torch.use_deterministic_algorithms(True)
    plain = _train(steps, lambda model: nullcontext())
    watched = _train(steps, lambda model: msprobe.record(model, tmp_path / "run", level=level, what=EVERYTHING))
    _assert_same_bits(watched, plain)
    run = read(tmp_path / "run")
    assert sorted({row.step for row in run.rows}) == list(range(steps))
    skips = [event.step for event in run.events if event.kind == "scaler_skip"]
    assert skips == [step for step in SKIPPED if step < steps]
    assert set(run.kinds("scaler_skip")) <= {"gap"}


@pytest.mark.parametrize("level", ["module", "mix"])
def test_training_is_bit_identical(tmp_path, read, level):
    _check_training(3, tmp_path, read, level)


@pytest.mark.long
@pytest.mark.parametrize("level", ["module", "op", "mix"])
def test_fifty_steps_of_training_are_bit_identical(tmp_path, read, level):
    _check_training(50, tmp_path, read, level)


@pytest.mark.parametrize("level", ["module", "mix"])
def test_inference_is_bit_identical(tmp_path, read, level):
    plain = _infer(lambda model: nullcontext())
    watched = _infer(lambda model: msprobe.record(model, tmp_path / "run", level=level, what=EVERYTHING))
    _assert_same_bits(watched, plain)
    assert read(tmp_path / "run").events == []


def test_recomputed_passes_are_marked(tmp_path, read):
    torch.manual_seed(3)
    model = Model()
    with msprobe.record(model, tmp_path / "run", trace=False) as probe:
        ids = torch.ones(2, 5, dtype=torch.long)
        model(ids, labels=ids)["loss"].backward()
        probe.step()
    places = read(tmp_path / "run").places()
    assert len(places) == len(set(places))
    recomputed = {place.split("|")[0] for place in places if "|recompute|" in place}
    assert {"blocks.1", "blocks.1.up", "blocks.2", "blocks.2.up"} <= recomputed
    assert all(path.startswith(("blocks.1", "blocks.2", "blocks.0.shared")) for path in recomputed)
    for path in ("blocks.1.norm", "blocks.2.norm", "blocks.1.act", "blocks.2.act"):
        assert {f"{path}|forward|output|0|0", f"{path}|backward|input|0|0"} <= set(places)


def test_shared_module_in_checkpoints_counts_forward_and_recomputation_apart(tmp_path, read):
    model = Model()
    with msprobe.record(model, tmp_path / "run", trace=False) as probe:
        ids = torch.ones(2, 5, dtype=torch.long)
        model(ids, labels=ids)["loss"].backward()
        probe.step()
    places = [p for p in read(tmp_path / "run").places() if p.startswith("blocks.0.shared|") and "output" in p]
    assert places == [
        *(f"blocks.0.shared|forward|output|0|{call}" for call in range(3)),
        *(f"blocks.0.shared|recompute|output|0|{call}" for call in range(2)),
    ]
