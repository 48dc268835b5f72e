"""Padded against packed, left against right padding: activations are compared token by token."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import msprobe
from msprobe.core.matching.tokens import of_lengths, of_mask, of_positions

LENGTHS = (5, 2, 4)
WIDTH = 6


class Model(nn.Module):
    """Works on tokens one by one, in whatever shape they come."""

    def __init__(self, *, fault: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(50, 16)
        self.up = nn.Linear(16, 32)
        self.norm = nn.LayerNorm(32, eps=1e-2 if fault else 1e-5)
        self.head = nn.Linear(32, 50)

    def forward(self, input_ids, attention_mask=None, cu_seqlens=None, position_ids=None):
        return self.head(torch.tanh(self.norm(self.up(self.embedding(input_ids)))))


def samples():
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(1, 50, (length,), generator=generator) for length in LENGTHS]


def padded(*, left: bool):
    ids, mask = torch.zeros(len(LENGTHS), WIDTH, dtype=torch.long), torch.zeros(len(LENGTHS), WIDTH, dtype=torch.long)
    for row, sample in enumerate(samples()):
        place = slice(WIDTH - len(sample), WIDTH) if left else slice(len(sample))
        ids[row, place], mask[row, place] = sample, 1
    return {"input_ids": ids, "attention_mask": mask}


def batch(kind):
    if kind == "packed":
        ends = torch.tensor([0, *np.cumsum(LENGTHS)], dtype=torch.int32)
        return {"input_ids": torch.cat(samples()), "cu_seqlens": ends}
    if kind == "positions":
        positions = torch.cat([torch.arange(length) for length in LENGTHS])
        return {"input_ids": torch.cat(samples())[None], "position_ids": positions[None]}
    return padded(left=kind == "left")


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    """Gives a function that records one pass over a batch, once for each kind."""
    made = {}

    def start(kind, what="tensors", *, fault=False):
        key = (kind, what, fault)
        if key not in made:
            made[key] = tmp_path_factory.mktemp(kind) / "run"
            model, inputs = Model(fault=fault), batch(kind)
            with msprobe.record(model, made[key], what=what):
                logits = model(**inputs)
                real = inputs.get("attention_mask", torch.ones(logits.shape[:-1])) != 0
                logits[real].square().sum().backward()
        return made[key]

    return start


@pytest.mark.parametrize("what", ["tensors", "statistics,rows"])
@pytest.mark.parametrize("kinds", [("packed", "right"), ("left", "right"), ("left", "packed"), ("positions", "left")])
def test_equal_tokens_agree_in_any_layout(record, kinds, what):
    comparison = msprobe.compare(*(record(kind, what) for kind in kinds))
    assert comparison.summary.counts["introduced"] == comparison.summary.counts["suspect"] == 0
    pairs = comparison.pairs
    for node in ("up", "norm", "head"):
        rows = (pairs["candidate_node"] == node) & (pairs["direction"] == "forward") & (pairs["role"] == "output")
        assert set(pairs["error_kind"][rows]) == {"tensor" if what == "tensors" else "rows"}
        assert (pairs["error"][rows] < 1e-6).all()
        assert set(pairs["verdict"][rows]) <= {"equal", "normal"}
    assert comparison.summary.coverage.tokens_share == 1.0
    assert any("100.0% of the tokens" in finding.text for finding in comparison.summary.findings)


@pytest.mark.parametrize("what", ["tensors", "statistics,rows"])
def test_a_fault_is_found_through_the_alignment(record, what):
    comparison = msprobe.compare(record("packed", what, fault=True), record("right", what))
    (source, *_) = comparison.summary.sources
    assert source.node == "norm"


def test_statistics_that_include_padding_are_no_judgement(record):
    comparison = msprobe.compare(record("left", "statistics,sketch"), record("right", "statistics,sketch"))
    pairs = comparison.pairs
    rows = (pairs["candidate_node"] == "up") & (pairs["direction"] == "forward") & (pairs["role"] == "output")
    assert list(pairs["verdict"][rows]) == ["inconclusive"]
    assert "record rows or tensors" in pairs["reason"][rows][0]
    assert comparison.summary.coverage.aligned_share < 1


def test_the_order_follows_from_masks_lengths_and_positions():
    one = of_mask(np.array([[0, 1, 1], [1, 1, 0]]))
    packed = of_lengths(np.array([0, 2, 4]))
    again = of_positions(np.array([[0, 1, 0, 1]]))
    assert one is not None
    assert packed is not None
    assert again is not None
    assert sorted(one.keys[one.keys >= 0]) == sorted(packed.keys) == sorted(again.keys)
    assert (one.keys == -1).tolist() == [True, False, False, False, False, True]
    assert packed.rest((4, 8)) == packed.rest((1, 4, 8)) == (8,)
    assert packed.rest((5, 8)) is None


@pytest.mark.parametrize("bad", [[1, 2], [0, 3, 2], [0]])
def test_lengths_that_are_none_tell_nothing(bad):
    assert of_lengths(np.array(bad)) is None


def test_lengths_that_the_user_hands_over_count(tmp_path):
    model = Model()
    with msprobe.record(model, tmp_path / "packed"):
        msprobe.save(torch.tensor([0, *np.cumsum(LENGTHS)]), "tokens.cu_seqlens")
        model(torch.cat(samples()))
    with msprobe.record(model, tmp_path / "padded", what="statistics,rows"):
        model(**batch("left"))
    pairs = msprobe.compare(tmp_path / "packed", tmp_path / "padded").pairs
    rows = (pairs["candidate_node"] == "up") & (pairs["role"] == "output")
    assert "record rows or tensors" in pairs["reason"][rows][0]


def test_what_a_mapping_says_of_tokens_is_checked(record, tmp_path):
    file = tmp_path / "layers.yaml"
    file.write_text("version: 1\nrules: []\ntokens: {candidate: packed, reference: padded}\n")
    runs = record("packed"), record("right")
    right = msprobe.compare(*runs, mapping=file)
    wrong = msprobe.compare(*runs, mapping=file, swap=True)
    texts = [[f.text for f in c.summary.findings if f.text.startswith("The mapping calls")] for c in (right, wrong)]
    assert texts[0] == []
    assert texts[1][0] == "The mapping calls the tokens of the candidate padded; they are not."
