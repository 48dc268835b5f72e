"""Rules that keep nodes apart which would be paired by themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from msprobe.core.errors import MappingError
from msprobe.core.matching.mapping_file import read_mapping
from msprobe.core.matching.pairing import match_nodes
from msprobe.core.sites import Node, NodeKind

PATHS = ("layers", "layers.0", "layers.0.up", "layers.0.up/aten.mm", "layers.1", "layers.1.up", "head")


def nodes():
    return [
        Node(path, NodeKind.OP if "/" in path else NodeKind.MODULE, path.rpartition(".")[2], None) for path in PATHS
    ]


def partners(tmp_path: Path, rules: str, *, swap: bool = False) -> dict[str, str]:
    file = tmp_path / "layers.yaml"
    file.write_text(f"version: 1\nrules:\n{rules}")
    mapping = read_mapping(file, swap=swap)
    mapping.check_used(PATHS, PATHS)
    pairs = match_nodes(nodes(), nodes(), mapping=mapping)
    return {PATHS[i]: PATHS[j] for i, j in enumerate(pairs.partner) if j >= 0}


def test_a_pair_and_all_below_it_is_kept_apart(tmp_path: Path) -> None:
    found = partners(tmp_path, "  - apart: {candidate: layers.0, reference: layers.0}\n")
    assert set(PATHS) - set(found) == {"layers.0", "layers.0.up", "layers.0.up/aten.mm"}


def test_placeholders_keep_each_pair_apart(tmp_path: Path) -> None:
    found = partners(tmp_path, "  - apart: {candidate: 'layers.{i}.up', reference: 'layers.{i}.up'}\n")
    assert set(PATHS) - set(found) == {"layers.0.up", "layers.0.up/aten.mm", "layers.1.up"}


def test_a_rule_may_name_another_partner(tmp_path: Path) -> None:
    rules = "  - apart: {candidate: head, reference: head}\n  - {candidate: head, reference: layers.1.up}\n"
    assert partners(tmp_path, rules)["head"] == "layers.1.up"


def test_read_the_other_way_round(tmp_path: Path) -> None:
    rules = "  - {candidate: layers.1.up, reference: head}\n  - apart: {candidate: head, reference: head}\n"
    assert partners(tmp_path, rules, swap=True)["head"] == "layers.1.up"


def test_automatic_is_true_or_false(tmp_path: Path) -> None:
    file = tmp_path / "layers.yaml"
    file.write_text("version: 1\nautomatic: maybe\nrules: []\n")
    with pytest.raises(MappingError, match=r"layers\.yaml:2.*true or false"):
        read_mapping(file)


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("apart: head", "names two nodes"),
        ("apart: {candidate: head}", "names two nodes"),
        ("apart: {candidate: 'layers.{i}', reference: head}", "same placeholders"),
        ("apart: {candidate: haed, reference: head}", "Did you mean 'head'"),
    ],
)
def test_mistakes_are_named_with_their_line(tmp_path: Path, rule: str, said: str) -> None:
    with pytest.raises(MappingError, match=r"layers\.yaml:3.*") as raised:
        partners(tmp_path, f"  - {rule}\n")
    assert said in str(raised.value)
