"""Comparisons as data: what the engine would hand to a visualizer, in every state that it has to show."""

from __future__ import annotations

import numpy as np
import pytest

from msprobe.core.comparison import (
    PAIR_COLUMNS,
    SHOWN_STATISTICS,
    Comparison,
    ContextDifference,
    Coverage,
    Finding,
    RunIdentity,
    Source,
    Summary,
)

LEAVES = ("input_layernorm", "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
          "post_attention_layernorm", "mlp.gate_proj", "mlp.up_proj", "mlp.act_fn", "mlp.down_proj")  # fmt: skip

HOSTILE = '=HYPERLINK("http://x")</script><img src=x onerror=alert(1)>\x1b[31m|`*\u202e\u4e2d\u6587\'&'

TEXT = {"candidate_node", "reference_node", "direction", "role", "argument", "candidate_class", "reference_class",
        "candidate_dtype", "reference_dtype", "candidate_shape", "reference_shape", "verdict", "reason", "error_kind",
        "bound_source", "match_reason", "note"}  # fmt: skip
COUNTS = ("nan", "pos_inf", "neg_inf", "zero")
WHOLE = {"rank", "step", "micro_step", "order", "candidate_call", "reference_call"}
WHOLE |= {f"{side}_{count}" for side in ("candidate", "reference") for count in COUNTS}


def make_pairs(rows: list[dict[str, object]]) -> dict[str, np.ndarray]:
    """Makes the columns from rows that name only what differs from an agreeing pair."""
    columns: dict[str, np.ndarray] = {}
    for name in PAIR_COLUMNS:
        values = [row.get(name, _default(name, row)) for row in rows]
        dtype = object if name in TEXT else np.int64 if name in WHOLE else np.float64
        columns[name] = np.array(values, dtype=dtype)
    return columns


def _default(name: str, row: dict[str, object]) -> object:
    side, _, what = name.partition("_")
    if what in SHOWN_STATISTICS:
        absent = row.get(f"{side}_call", 0) == -1 or row.get(f"{side}_dtype") == ""
        if what in COUNTS:
            return -1 if absent else 0
        return np.nan if absent else {"min": -3.5, "max": 3.25, "mean": 1e-3, "norm": 128.0}[what]
    known = {
        "reference_node": row.get("candidate_node", ""),
        "direction": "forward",
        "role": "output",
        "argument": "0",
        "candidate_dtype": "fp32",
        "reference_dtype": "fp32",
        "candidate_shape": "2x128x256",
        "reference_shape": "2x128x256",
        "verdict": "normal",
        "reason": "within the bound",
        "error": 3e-7,
        "error_kind": "tensor",
        "error_eps": 5.0,
        "bound": 8e-7,
        "bound_source": "local",
        "match_reason": "name",
        "match_confidence": 1.0,
        "candidate_class": "Linear",
        "reference_class": "Linear",
    }
    return known.get(name, "" if name in TEXT else 0)


def transformer_rows(layers: int, fault: int) -> list[dict[str, object]]:
    """Gives forward and backward outputs of a transformer whose o_proj of one layer is wrong."""
    nodes = [("model.embed_tokens", -1)]
    nodes += [(f"model.layers.{i}.{leaf}", i) for i in range(layers) for leaf in LEAVES]
    nodes += [("model.norm", layers), ("lm_head", layers)]
    rows = [_transformer_row(path, layer, "forward", fault) for path, layer in nodes]
    rows += [_transformer_row(path, layer, "backward", fault) for path, layer in reversed(nodes)]
    for place, row in enumerate(rows):
        row["order"] = place
    return rows


def _transformer_row(path: str, layer: int, direction: str, fault: int) -> dict[str, object]:
    row: dict[str, object] = {"candidate_node": path, "direction": direction}
    after = direction == "backward" or layer > fault or (layer == fault and LEAVES.index(path.split(".", 3)[3]) > 4)
    if path == f"model.layers.{fault}.self_attn.o_proj" and direction == "forward":
        row |= {
            "verdict": "introduced",
            "error": 2.46e-5,
            "error_eps": 412.0,
            "bound": 3.7e-7,
            "reason": "above the bound",
        }
    elif after:
        row |= {
            "verdict": "inherited",
            "error": 1e-5,
            "error_eps": 168.0,
            "bound": 2e-5,
            "reason": "explained by its inputs",
        }
    elif layer < 1:
        row |= {"verdict": "equal", "error": 0.0, "error_eps": 0.0, "reason": "same bits", "error_kind": "checksum"}
    return row


def make_comparison(rows: list[dict[str, object]], *, exit_code: int = 1, **changes: object) -> Comparison:
    """Makes a comparison whose summary counts its rows; introduced rows become sources."""
    pairs = make_pairs(rows)
    verdicts = [str(v) for v in pairs["verdict"]]
    names = ("unmatched", "inconclusive", "equal", "normal", "introduced", "inherited", "suspect")
    counts = {name: verdicts.count(name) for name in names}
    matched = len(rows) - counts["unmatched"]
    sources = tuple(_source(pairs, row) for row in range(len(rows)) if verdicts[row] == "introduced")
    verdict = "introduced" if sources else "clean"
    values: dict[str, object] = {
        "verdict": verdict,
        "sentence": f"The first error that rounding does not explain is made in {sources[0].node}, forward at step 0."
        if sources
        else f"No error beyond rounding in {matched:,} judged pairs.",
        "exit_code": exit_code if sources or not rows else 0,
        "coverage": Coverage(len(rows), matched, matched, matched - counts["inconclusive"], counts["unmatched"], 0),
        "sources": sources,
        "findings": (),
        "counts": counts,
        "context": (),
        "constants": {"min_coverage": 0.95, "c": 8.0},
        "candidate": RunIdentity("runs/candidate", "pytorch 2.13.0", (0, 1), (0, 1, 2), len(rows)),
        "reference": RunIdentity("runs/reference", "pytorch 2.13.0", (0, 1), (0, 1, 2), len(rows)),
    }
    return Comparison(Summary(**{**values, **changes}), pairs)  # type: ignore[arg-type]


def _source(pairs: dict[str, np.ndarray], row: int) -> Source:
    def text(name: str) -> str:
        return str(pairs[name][row])

    return Source(
        node=text("candidate_node"), node_class=text("candidate_class"), site=text("candidate_node") + " output 0",
        direction=text("direction"), role=text("role"), argument=text("argument"), own_code=False,
        rank=int(pairs["rank"][row]), step=int(pairs["step"][row]), micro_step=int(pairs["micro_step"][row]),
        error=float(pairs["error"][row]), error_eps=float(pairs["error_eps"][row]), bound=float(pairs["bound"][row]),
        verdict="introduced", sentence="An error is made here.", row=row,
        evidence=("its inputs agree: input 0 within 2.8 eps, weight equal", "the bound is local: K = 256, fp32"),
    )  # fmt: skip


@pytest.fixture
def introduced() -> Comparison:
    """Gives a comparison with one source, suspects, and rows in every verdict and every state of a number."""
    rows = transformer_rows(6, 3)
    nan, inf = float("nan"), float("inf")
    rows[70] |= {"verdict": "suspect", "error": 0.3, "error_eps": 5e6, "bound": 1e-2, "reason": "more than its inputs"}
    rows[80] |= {"verdict": "inconclusive", "error": nan, "error_eps": nan, "bound": nan, "error_kind": "",
                 "reason": "statistics are missing on both sides"}  # fmt: skip
    rows[81] |= {"verdict": "suspect", "error": inf, "error_eps": inf, "candidate_nan": 12, "candidate_min": nan,
                 "reason": "NaN in the candidate only"}  # fmt: skip
    rows.append({"candidate_node": "model.extra", "reference_node": "", "reference_call": -1, "verdict": "unmatched",
                 "reason": "only in the candidate", "error": nan, "error_eps": nan, "bound": nan, "error_kind": "",
                 "reference_dtype": "", "reference_shape": ""})  # fmt: skip
    rows.append({"candidate_node": "", "reference_node": "model.gone", "candidate_call": -1, "verdict": "unmatched",
                 "reason": "only in the reference", "error": nan, "error_eps": nan, "bound": nan, "error_kind": "",
                 "candidate_dtype": "", "candidate_shape": ""})  # fmt: skip
    return make_comparison(
        rows,
        findings=(Finding("missing rank", "rank 3 is only in the reference"),),
        context=(ContextDifference("argument", "model.layers.3.self_attn", "eps", "1e-05", "1e-06"),),
    )


@pytest.fixture
def hostile() -> Comparison:
    """Gives a comparison whose every text comes from a stranger."""
    rows = transformer_rows(2, 1)
    for row in rows:
        row |= {"candidate_node": HOSTILE, "reference_node": HOSTILE, "argument": HOSTILE, "reason": HOSTILE}
        row |= {"note": HOSTILE, "candidate_class": HOSTILE, "candidate_shape": HOSTILE}
    return make_comparison(
        rows,
        sentence=HOSTILE,
        findings=(Finding(HOSTILE, HOSTILE),),
        context=(ContextDifference(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE),),
        candidate=RunIdentity(HOSTILE, HOSTILE, (0,), (0,), 1),
    )


@pytest.fixture
def clean() -> Comparison:
    """Gives a comparison in which all agrees."""
    return make_comparison([row for row in transformer_rows(3, 99) if row["direction"] == "forward"])


@pytest.fixture
def empty() -> Comparison:
    """Gives a comparison without a pair."""
    return make_comparison([], verdict="inconclusive", sentence="The runs have nothing in common.", exit_code=3)


@pytest.fixture(params=[20_000, pytest.param(200_000, marks=pytest.mark.long)])
def many(request: pytest.FixtureRequest) -> Comparison:
    """Gives so many pairs that a loop over them would be felt."""
    small = make_comparison(transformer_rows(48, 17))
    size = request.param
    index = np.arange(size) % len(small)
    pairs = {name: column[index] for name, column in small.pairs.items()}
    pairs["order"] = np.arange(size)
    pairs["step"] = np.arange(size) // len(small)
    counts = {name: int(np.sum(pairs["verdict"] == name)) for name in small.summary.counts}
    summary = {name: getattr(small.summary, name) for name in small.summary.__slots__}
    return Comparison(Summary(**{**summary, "counts": counts}), pairs)
