"""A fused query-key-value bias: the keys' third has a gradient of rounding alone, which Adam turns into full steps."""

from __future__ import annotations

import pytest
import torch

import msprobe

transformers = pytest.importorskip("transformers")


def train(path, attention, *, lr=1e-3):
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_embd=32, n_layer=2, n_head=2, vocab_size=64, n_positions=32, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0
    )
    config._attn_implementation = attention
    model = transformers.GPT2LMHeadModel(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    tokens = torch.randint(0, 64, (3, 2, 16), generator=torch.Generator().manual_seed(1))
    with msprobe.record(model, path, optimizer=optimizer):
        for batch in tokens:
            (1000 * model(batch, labels=batch).loss).backward()
            optimizer.step()
            optimizer.zero_grad()
    return path


def test_another_attention_kernel_is_no_fault_of_the_optimizer(tmp_path):
    summary = msprobe.compare(train(tmp_path / "eager", "eager"), train(tmp_path / "sdpa", "sdpa")).summary
    assert summary.verdict == "clean", summary.sentence


def test_another_learning_rate_still_is(tmp_path):
    wrong, right = train(tmp_path / "wrong", "eager", lr=1.5e-3), train(tmp_path / "right", "eager")
    summary = msprobe.compare(wrong, right).summary
    assert summary.verdict == "introduced"
    assert "optimizer" in summary.sentence
