"""The section ``parallel`` of a mapping file tells meshes and rules; its mistakes name file and line."""

from __future__ import annotations

import pytest

import msprobe
from msprobe.core.comparing import compare_runs
from msprobe.core.errors import MappingError
from msprobe.core.merging.section import read_section
from msprobe.core.placement import Placement
from msprobe.core.sites import Role

from .cutting import NO_TENSORS, Seen, write_one, write_ranks

SECTION = """\
version: 1
parallel:
  candidate: {tp: 2, order: tp-dp}
  layers:
    - class: Column*
      outputs: {tp: shard(-1)}
      parameters: {weight: {tp: shard(0)}}
"""


def test_a_section_tells_what_a_run_did_not_record(floats, tmp_path):
    (tmp_path / "layers.yaml").write_text(SECTION)
    weight, values = floats(6, 4), floats(2, 6)
    kind = "ColumnParallelLinear"

    def look(place):
        half = slice(3 * place["tp"], 3 * place["tp"] + 3) if place else slice(None)
        yield Seen("a", weight[half], role=Role.PARAMETER, argument="weight", class_name=kind)
        yield Seen("a", values[:, half], class_name=kind)

    one = write_one(tmp_path / "one", look({}), what=NO_TENSORS)
    many = write_ranks(tmp_path / "many", {"tp": 2}, look, mesh={}, what=NO_TENSORS)
    comparison = compare_runs(many, one, mapping=tmp_path / "layers.yaml")
    assert comparison.summary.verdict == "clean"
    assert comparison.pairs["candidate_shape"].tolist() == ["6x4", "2x6"]
    swapped = compare_runs(one, many, mapping=tmp_path / "layers.yaml", swap=True)
    assert swapped.summary.verdict == "clean"


def test_rules_of_an_installed_plugin_are_used(floats, tmp_path):
    values = floats(2, 6)
    one = write_one(tmp_path / "one", [Seen("a", values, class_name="SplitDense")], what=NO_TENSORS)
    halves = lambda place: [Seen("a", values[:, 3 * place["tp"] :][:, :3], class_name="SplitDense")]  # noqa: E731
    many = write_ranks(tmp_path / "many", {"tp": 2}, halves, mesh={}, what=NO_TENSORS)
    comparison = msprobe.compare(many, one, parallel={"tp": 2})
    assert comparison.summary.verdict == "clean"
    assert comparison.pairs["candidate_shape"].tolist() == ["2x6"]


def test_rules_hold_for_both_sides_and_meshes_for_one(tmp_path):
    (tmp_path / "layers.yaml").write_text(SECTION)
    candidate, reference = read_section(tmp_path / "layers.yaml")
    assert (candidate.sizes, reference.sizes) == ({"tp": 2}, {})
    assert candidate.rules == reference.rules
    assert candidate.rules[0].outputs == (Placement("tp", "shard", -1),)


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("parallel: 3\n", 2, "the section holds 'candidate', 'reference' and 'layers'"),
        ("parallel:\n  candidat: {tp: 2}\n", 3, "unknown key 'candidat'. Did you mean 'candidate'?"),
        ("parallel:\n  candidate: {sp: 2}\n", 3, "unknown key 'sp'"),
        ("parallel:\n  candidate: {tp: two}\n", 3, "the size of axis tp is a number of ranks, not 'two'"),
        ("parallel:\n  candidate: {tp: 2, order: tp-tp}\n", 3, "names an axis twice"),
        ("parallel:\n  layers: {class: A}\n", 3, "'layers' is a list of rules"),
        ("parallel:\n  layers:\n    - outputs: {tp: shard(0)}\n", 4, "a rule names a 'class'"),
        ("parallel:\n  layers:\n    - class: A\n      outputs: {tp: split(0)}\n", 4, "'split(0)' is no placement"),
        ("parallel:\n  layers:\n    - class: A\n      output: {tp: shard(0)}\n", 5, "Did you mean 'outputs'?"),
    ],
)
def test_mistakes_name_file_and_line(text, line, says, tmp_path):
    file = tmp_path / "layers.yaml"
    file.write_text(f"version: 1\n{text}")
    with pytest.raises(MappingError) as caught:
        read_section(file)
    assert str(caught.value).startswith(f"{file}:{line}: ")
    assert says in str(caught.value)
