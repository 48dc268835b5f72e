"""Rules by class, the older tool's two-level file, and what is wrong with a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from msprobe.core.errors import MappingError
from msprobe.core.matching.mapping_file import read_mapping
from msprobe.core.matching.pairing import match_nodes
from msprobe.core.sites import Node, NodeKind

if TYPE_CHECKING:
    from pathlib import Path


def modules(**classes: str) -> list[Node]:
    """Gives modules by path, with ``__`` for a dot, and their classes."""
    paths = {"": "Root", **{path.replace("__", "."): name for path, name in classes.items()}}
    return [
        Node(path, NodeKind.MODULE, name, path.rpartition(".")[0] if path else None) for path, name in paths.items()
    ]


MEGATRON = modules(
    net="GPTModel",
    net__layers="ModuleList",
    net__layers__0="ParallelLayer",
    net__layers__0__mlp="ParallelMLP",
    net__layers__0__mlp__dense_h_to_4h="Linear",
    net__layers__0__mlp__dense_4h_to_h="Linear",
    net__other="Other",
    net__other__dense_h_to_4h="Linear",
)
CORE = modules(
    module="GPTModel",
    module__layers="ModuleList",
    module__layers__0="Layer",
    module__layers__0__mlp="MLP",
    module__layers__0__mlp__linear_fc2="Linear",
    module__layers__0__mlp__linear_fc1="Linear",
)
MLP = {
    "net.layers.0.mlp.dense_h_to_4h": "module.layers.0.mlp.linear_fc1",
    "net.layers.0.mlp.dense_4h_to_h": "module.layers.0.mlp.linear_fc2",
}

BY_CLASS = """\
version: 1
rules:
  - {candidate: net, reference: outer}
  - class: {candidate: ParallelMLP}
    children: {dense_h_to_4h: linear_fc1, dense_4h_to_h: linear_fc2}
"""
TWO_LEVELS = """\
TopLayer:
  net: outer
ParallelMLP:
  dense_h_to_4h: linear_fc1
  dense_4h_to_h: linear_fc2
"""


def renamed(nodes: list[Node], old: str, new: str) -> list[Node]:
    def swap(path: str) -> str:
        return new + path.removeprefix(old) if path.partition(".")[0] == old else path

    return [Node(swap(n.path), n.kind, n.class_name, None if n.parent is None else swap(n.parent)) for n in nodes]


def paired(
    candidate: list[Node], reference: list[Node], path: Path, *, swap: bool = False
) -> dict[str, tuple[str, str]]:
    pairs = match_nodes(candidate, reference, mapping=read_mapping(path, swap=swap))
    return {
        candidate[i].path: (reference[j].path, pairs.reasons[i].text)
        for i, j in enumerate(pairs.partner.tolist())
        if j >= 0
    }


@pytest.mark.parametrize("text", [BY_CLASS, TWO_LEVELS], ids=["class", "TopLayer"])
@pytest.mark.parametrize("swap", [False, True])
def test_children_of_a_class_are_named(tmp_path: Path, text: str, swap: bool) -> None:
    path = tmp_path / "layers.yaml"
    path.write_text(text)
    outer = renamed(CORE, "module", "outer")
    found = paired(*((outer, MEGATRON) if swap else (MEGATRON, outer)), path, swap=swap)
    expected = {a: b.replace("module", "outer") for a, b in MLP.items()}
    for candidate, reference in expected.items():
        one, other = (reference, candidate) if swap else (candidate, reference)
        assert found[one][0] == other
        assert found[one][1].startswith(f"mapping, {path}:")
    assert "net.other.dense_h_to_4h" not in found


def test_a_rename_may_be_limited_to_a_class(tmp_path: Path) -> None:
    path = tmp_path / "layers.yaml"
    path.write_text('version: 1\nrules:\n  - {candidate: "x.{i}", reference: "y.{i}", class: {candidate: Wide}}\n')
    mapping = read_mapping(path)
    found = mapping.translate("x.1", "Wide")
    assert found is not None
    assert found.path == "y.1"
    assert mapping.translate("x.1", "Narrow") is None


RULE = "version: 1\nrules:\n  - candidate: a\n    reference: [b, c]\n    combine: "


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        (RULE + "{conkat: -1}\n", 5, "Did you mean 'concat'?"),
        (RULE + "{transpose: [0, 1]}\n", 5, "joined by 'concat', 'split' or 'interleave'"),
        (RULE + "{concat: -1, split: 0}\n", 5, "joined in one way"),
        (RULE + "{concat: last}\n", 5, "a dimension is a whole number"),
        (RULE + "{interleave: 4}\n", 5, "{dim: 0, groups: 8}"),
        (RULE + "{interleave: {dim: 0, groups: 0}}\n", 5, "'groups' is a number"),
        (RULE + "{concat: 0, transpose: [0]}\n", 5, "swaps two dimensions"),
        (RULE + "{concat: 0, reshape: [-1, -1]}\n", 5, "only one size"),
        (RULE + "{concat: 0, of: biases}\n", 5, "'of' is one of"),
        (RULE + "{concat: 0, order: sorted}\n", 5, "'order' is 'content'"),
        ("version: 1\nrules:\n  - candidate: [a, b]\n    reference: [b, c]\n    combine: {concat: 0}\n", 3, "one side"),
        ("version: 1\nrules:\n  - candidate: a\n    reference: [b, b]\n    combine: {concat: 0}\n", 4, "named twice"),
        ("version: 1\nrules:\n  - candidate: a.{i\n    reference: b.{i\n", 3, "a placeholder is one word in braces"),
        ("version: 1\nrules:\n  - children: {a: b}\n", 3, "needs 'class'"),
        ("version: 1\nrules:\n  - class: {candidate: A}\n    children: {a: [b]}\n", 4, "a child is named by its path"),
        ("version: 1\nrules:\n  - class: {kandidat: A}\n    children: {a: b}\n", 3, "unknown key 'kandidat'"),
        ("version: 1\nrules: []\ntokens: {candidate: loose}\n", 3, "tokens lie packed, padded"),
        ("version: 1\ncandidate: {frame: vllm}\nrules: []\n", 2, "unknown key 'frame'"),
        ("TopLayer:\n  a: [b]\n", 2, "a child is named by its path"),
        ("version: 1\nrules:\n  - {candidate: a, reference: b, confidence: 2}\n", 3, "between 0 and 1"),
    ],
)
def test_a_mistake_names_its_line_and_the_way_out(tmp_path: Path, text: str, line: int, says: str) -> None:
    path = tmp_path / "layers.yaml"
    path.write_text(text)
    with pytest.raises(MappingError) as caught:
        read_mapping(path)
    assert str(caught.value).startswith(f"{path}:{line}:")
    assert says in str(caught.value)


def test_lists_in_brackets_need_no_quotes_around_placeholders(tmp_path: Path) -> None:
    path = tmp_path / "layers.yaml"
    path.write_text(
        "version: 1\nrules:\n  - candidate: a.{i}\n    reference: [b.{i}.q, b.{i}.k]\n    combine: {split: 0}\n"
    )
    (read,) = read_mapping(path).rules
    assert read.reference == ("b.{i}.q", "b.{i}.k")


def test_a_file_that_is_written_the_other_way_round_says_so(tmp_path: Path) -> None:
    path = tmp_path / "layers.yaml"
    path.write_text("version: 1\nrules:\n  - {candidate: here, reference: there}\n")
    with pytest.raises(MappingError, match="add --swap"):
        read_mapping(path).check_used(["there"], ["here"])
