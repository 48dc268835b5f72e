"""Each layout against the whole model in one process: the same, with no mapping file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison

QUICK = ("tp2 sp", "vpp2", "cp2", "ep2")
LONG = ("tp2", "pp2", "tp2 pp2", "tp2 fsdp2", "megatron tp2", "megatron tp2 sp", "silent tp2")
DIRECTIONS = {("forward", "input"), ("forward", "output"), ("forward", "parameter"), ("backward", "input")}
DIRECTIONS |= {("backward", "output"), ("backward", "gradient"), ("update", "gradient")}
#: Kinds of findings that a clean pair must not have.
WRONG = ("replica", "layout", "gap", "gathered", "unreduced", "error")


def check_clean(result: Comparison) -> None:
    """Checks that nothing is wrong, every module has its partner and every kind of record was judged."""
    told = [finding for finding in result.summary.findings if finding.kind in WRONG]
    findings = [finding.text for finding in told]
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
