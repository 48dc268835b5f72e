"""Each layout against the whole model in one process: the same, with no mapping file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison

QUICK = ("tp2 sp", "vpp2", "cp2", "ep2")
LONG = ("tp2", "pp2", "tp2 pp2")
DIRECTIONS = {("forward", "input"), ("forward", "output"), ("forward", "parameter"), ("backward", "input")}
DIRECTIONS |= {("backward", "output"), ("backward", "gradient"), ("update", "gradient")}


def check_clean(result: Comparison) -> None:
    """Checks that nothing is wrong, every module has its partner and every kind of record was judged."""
    findings = [finding.text for finding in result.summary.findings if finding.kind in ("replica", "layout", "gap")]
    assert (result.summary.verdict, findings) == ("clean", [])
    assert result.summary.coverage.judged >= 0.95 * result.summary.coverage.records
    pairs = result.pairs
    matched = pairs["verdict"] != "unmatched"
    modules = set(pairs["candidate_node"]) | set(pairs["reference_node"])
    assert {*pairs["candidate_node"][matched]} | {""} == modules | {""}
    assert {*zip(pairs["direction"][matched], pairs["role"][matched], strict=True)} >= DIRECTIONS


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)])
def test_a_layout_computes_what_one_process_computes(runs, name):
    check_clean(runs.compared(name, reference="moe" if name == "ep2" else "single"))
