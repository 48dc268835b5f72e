"""Data-parallel trainings against the same training in one process: clean ones agree, faults are found and named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from msprobe.core.comparing import compare_runs
from tests.parallel.launching import run_layout

LAYERS = 2
OF_FOUR = ("hsdp", "fsdp1-hybrid")
long = pytest.mark.long


@pytest.fixture(scope="module")
def single(tmp_path_factory) -> Path:
    return run_layout("single", tmp_path_factory.mktemp("single") / "run", layers=LAYERS)


def compared(way: str, single: Path, path: Path, fault: str | None = None, **settings: Any) -> Any:
    layout = "data parallel of four" if way in OF_FOUR else "data parallel"
    return compare_runs(run_layout(layout, path, fault, way=way, layers=LAYERS, **settings), single)


def told(comparison: Any, kind: str) -> str:
    return " ".join(finding.text for finding in comparison.summary.findings if finding.kind == kind)


@pytest.mark.parametrize(
    ("way", "interleaved"),
    [
        pytest.param("ddp", True, id="ddp with interleaved samples"),
        pytest.param("fsdp2", False, id="fsdp2"),
        pytest.param("ddp", False, id="ddp", marks=long),
        pytest.param("fsdp1", False, id="fsdp1", marks=long),
        pytest.param("fsdp1-flat", False, id="fsdp1 without original parameters", marks=long),
        pytest.param("hsdp", False, id="hsdp", marks=long),
        pytest.param("fsdp1-hybrid", False, id="fsdp1 hybrid", marks=long),
    ],
)
def test_a_clean_training_agrees_with_that_of_one_process_in_every_record(way, interleaved, single, tmp_path):
    comparison = compared(way, single, tmp_path / "run", interleaved=interleaved)
    summary = comparison.summary
    assert (summary.verdict, summary.exit_code) == ("clean", 0), summary.sentence
    assert summary.coverage.matched_share == 1.0
    assert summary.coverage.judged_share == 1.0
    assert "gradients after their reduction" in told(comparison, "spread")
    assert not told(comparison, "replica") + told(comparison, "gathered") + told(comparison, "reduction")


@pytest.mark.parametrize(
    ("way", "fault", "site", "words"),
    [
        pytest.param("ddp", "not reduced", "update gradient weight of layers.1.mlp.up", ["on rank 1 (dp 1) only"]),
        pytest.param("fsdp2", "gathered wrongly", "forward output 0 of layers.1.mlp.up", []),
        pytest.param(
            "ddp", "one replica's weight", "forward parameter weight of layers.1.mlp.up",
            ["on rank 1 (dp 1) only"], marks=long,
        ),
        pytest.param(
            "hsdp", "one replica's weight", "forward parameter weight of layers.1.mlp.up",
            ["on rank 3 (dp 1, fsdp 1) only"], marks=long,
        ),
        pytest.param(
            "ddp", "mean forgotten", "update gradient weight of embed",
            ["exactly 2 times", "the number of ranks along axis dp"], marks=long,
        ),
        pytest.param(
            "fsdp1", "mean forgotten", "update gradient weight of embed",
            ["exactly 2 times", "the number of ranks along axis fsdp"], marks=long,
        ),
        pytest.param("fsdp2", "shards in wrong order", "forward parameter weight of layers.1.mlp.up", [], marks=long),
        pytest.param("fsdp1-flat", "gathered wrongly", "forward output 0 of layers.1.mlp.up", [], marks=long),
        pytest.param("fsdp1", "same samples", "forward input 0 of the model", [], marks=long),
    ],
)  # fmt: skip
def test_a_fault_is_the_first_source_and_told_with_its_rank(way, fault, site, words, single, tmp_path):
    comparison = compared(way, single, tmp_path / "run", fault)
    summary = comparison.summary
    assert (summary.verdict, summary.exit_code) == ("introduced", 1)
    assert summary.sources[0].site == site
    for word in words:
        assert word in summary.sources[0].sentence + " ".join(summary.sources[0].evidence)
    gathered = told(comparison, "gathered")
    assert ("layers.1.mlp.up.weight at step 0, as gathered on rank 1 (fsdp 1)" in gathered) == (
        fault == "gathered wrongly"
    )
    assert len(summary.sources) == 1, "the rest follows from it"
