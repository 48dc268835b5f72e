"""The trainings of the demo: a small Qwen2 of the transformers library that learns to write Python.

Only this file of the front door imports torch, and it is imported when the demo runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional
from transformers import Qwen2Config, Qwen2ForCausalLM

import msprobe
from msprobe.demo.text import VOCABULARY, read_text

SAMPLES = 4
TOKENS = 128
WARM_UP_RATE = 2e-3
#: Lower: AdamW starts anew, with full steps, from weights that are trained.
LEARNING_RATE = 2e-4
#: Warming up ends after so many steps or seconds, whichever comes first.
WARM_UP_STEPS = 120
WARM_UP_SECONDS = 20.0
#: Recorded steps of each training.
STEPS = 3
#: The norm that ``norm_with_default_eps`` changes.
NORM = "model.layers.0.input_layernorm"


@dataclass(frozen=True, slots=True)
class Training:
    """One recorded training: what is done to the model that the others do not have, and on how many threads."""

    name: str
    change: Callable[[Qwen2ForCausalLM], None] | None = None
    threads: int = 1
    attention: str = "eager"


def rope_table_in_bf16(model: Qwen2ForCausalLM) -> None:
    """Computes the angles of the rotary embedding in bf16, as happens when a whole model is cast.

    bf16 keeps 8 bits, so the angle of position 100 is off by up to a quarter of a radian.
    """
    rotary = model.model.rotary_emb

    def forward(x: torch.Tensor, position_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        angles = position_ids[..., None].bfloat16() * rotary.inv_freq.bfloat16()
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(x.dtype), angles.sin().to(x.dtype)

    rotary.forward = forward


def norm_with_default_eps(model: Qwen2ForCausalLM) -> None:
    """Leaves one norm at a library's default eps instead of the checkpoint's."""
    model.get_submodule(NORM).variance_epsilon = 1e-6  # type: ignore[assignment]


def warm_up(path: Path) -> tuple[int, float, float]:
    """Trains for a short time and saves the weights; gives the steps, and the loss before and after."""
    ends = time.monotonic() + WARM_UP_SECONDS
    with _threads(1):
        model, losses = _build("eager"), []
        optimizer = torch.optim.AdamW(model.parameters(), WARM_UP_RATE)
        for batch in _batches(seed=1, steps=WARM_UP_STEPS):
            losses.append(_step(model, optimizer, batch))
            if time.monotonic() > ends:
                break
    torch.save(model.state_dict(), path)
    return len(losses), losses[0], losses[-1]


def record(training: Training, weights: Path, run: Path) -> list[float]:
    """Goes on training from saved weights, records every step, and gives the losses."""
    with _threads(training.threads):
        model = _build(training.attention)
        model.load_state_dict(torch.load(weights, weights_only=True))
        if training.change:
            training.change(model)
        optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE)
        losses = []
        with msprobe.record(model, run, level="module", what="statistics,sketch") as probe:
            for batch in _batches(seed=2, steps=STEPS):
                losses.append(_step(model, optimizer, batch))
                probe.step()
    return losses


def _build(attention: str) -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=352,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=TOKENS,
        rms_norm_eps=1e-5,
        tie_word_embeddings=True,
        use_cache=False,
    )
    config._attn_implementation = attention
    model = Qwen2ForCausalLM(config)
    model.train()
    return model


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: torch.Tensor) -> float:
    optimizer.zero_grad(set_to_none=True)
    logits = model(input_ids=batch[:, :-1]).logits
    loss = functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def _batches(*, seed: int, steps: int) -> Iterator[torch.Tensor]:
    text = torch.frombuffer(bytearray(read_text()), dtype=torch.uint8).long()
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        starts = torch.randint(len(text) - TOKENS - 1, (SAMPLES,), generator=generator)
        yield torch.stack([text[start : start + TOKENS + 1] for start in starts.tolist()])


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
