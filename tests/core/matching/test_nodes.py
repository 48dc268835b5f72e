from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from msprobe.core.errors import MappingError
from msprobe.core.matching.mapping import Mapping
from msprobe.core.matching.mapping_file import read_mapping
from msprobe.core.matching.pairing import match_nodes
from msprobe.core.sites import Node, NodeKind

if TYPE_CHECKING:
    from pathlib import Path


def modules(*paths: str, classes: dict[str, str] | None = None) -> list[Node]:
    kinds = classes or {}
    return [
        Node(path, NodeKind.MODULE, kinds.get(path, "Module"), path.rpartition(".")[0] if path else None)
        for path in ("", *paths)
    ]


def paired(candidate: list[Node], reference: list[Node], **more: object) -> dict[str, tuple[str, str]]:
    pairs = match_nodes(candidate, reference, **more)  # type: ignore[arg-type]
    return {
        candidate[i].path: (reference[j].path, pairs.reasons[i].text)
        for i, j in enumerate(pairs.partner.tolist())
        if j >= 0
    }


def test_equal_names_pair() -> None:
    assert paired(modules("a", "a.b"), modules("a", "a.b"))["a.b"] == ("a.b", "name")


def test_wrappers_in_a_path_do_not_matter() -> None:
    found = paired(modules("module", "module.a", "module.a._orig_mod", "module.a._orig_mod.b"), modules("a", "a.b"))
    assert found["module.a._orig_mod.b"] == ("a.b", "name without wrappers")


def test_equal_parameters_pair_modules_of_other_names_and_then_their_containers() -> None:
    candidate, reference = modules("blk", "blk.one", "blk.two"), modules("layer", "layer.x", "layer.y")
    found = paired(
        candidate,
        reference,
        contents=({2: "weights 1", 3: "weights 2"}, {2: "weights 1", 3: "weights 2"}),
    )
    assert found["blk.one"] == ("layer.x", "equal parameters")
    assert found["blk"] == ("layer", "their children are paired")


def test_content_that_is_not_unique_pairs_nothing() -> None:
    same = {2: "ones", 3: "ones"}
    found = paired(modules("b", "b.p", "b.q"), modules("c", "c.r", "c.s"), contents=(same, same))
    assert found["b.p"][1] != "equal parameters"


def test_equal_names_go_before_equal_content() -> None:
    found = paired(modules("p", "q"), modules("p", "q"), contents=({1: "w1", 2: "w2"}, {1: "w2", 2: "w1"}))
    assert found["p"][0] == "p"


def test_children_of_paired_parents_align_by_class() -> None:
    candidate = modules("a", "a.new", "a.fc", classes={"a.new": "Dropout", "a.fc": "Linear"})
    reference = modules("a", "a.linear", classes={"a.linear": "Linear"})
    found = paired(candidate, reference)
    assert found["a.fc"] == ("a.linear", "class and order inside paired parents")
    assert "a.new" not in found


def test_operators_follow_their_module() -> None:
    operator = Node("m.x/aten.mm.default", NodeKind.OP, "aten.mm.default", "m.x")
    twin = Node("k.y/aten.mm.default", NodeKind.OP, "aten.mm.default", "k.y")
    rules = Mapping([], "none")
    found = paired(
        [*modules("m", "m.x"), operator],
        [*modules("k", "k.y"), twin],
        mapping=rules,
        contents=({2: "w"}, {2: "w"}),
    )
    assert found["m.x/aten.mm.default"][0] == "k.y/aten.mm.default"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "layers.yaml"
    path.write_text(text)
    return path


RULES = """\
version: 1
rules:
  - candidate: model.layers.{i}.mlp
    reference: blocks.{i}.ffn
  - candidate: model.layers.3.mlp
    reference: blocks.3.special
  - candidate: encoder.{rest}
    reference: decoder.{rest}
  - ignore: model.rotary
"""


def test_rules_rename_nodes_and_all_below_them(tmp_path: Path) -> None:
    mapping = read_mapping(write(tmp_path, RULES))
    expected = {
        "model.layers.0.mlp": "blocks.0.ffn",
        "model.layers.12.mlp.up/aten.mm": "blocks.12.ffn.up/aten.mm",
        "model.layers.3.mlp.up": "blocks.3.special.up",
        "encoder.a.b": "decoder.a.b",
    }
    for path, other in expected.items():
        found = mapping.translate(path)
        assert found is not None
        assert found.path == other
    assert mapping.translate("model.layers.0.attn") is None


def test_swap_reads_the_file_backwards(tmp_path: Path) -> None:
    found = read_mapping(write(tmp_path, RULES), swap=True).translate("blocks.5.ffn.up")
    assert found is not None
    assert found.path == "model.layers.5.mlp.up"


def test_ignored_nodes_are_no_rows(tmp_path: Path) -> None:
    mapping = read_mapping(write(tmp_path, RULES))
    pairs = match_nodes(modules("model", "model.rotary"), modules("model", "model.rotary"), mapping=mapping)
    assert pairs.ignored_candidate == {2}
    assert pairs.ignored_reference == {2}


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("version: 1\nrules:\n  - candidat: a\n    reference: b\n", 3, "Did you mean 'candidate'?"),
        ("version: 2\nrules: []\n", 1, "reads 'version: 1'"),
        ("version: 1\nrules:\n  - candidate: a.{i}\n    reference: b.{j}\n", 3, "same placeholders"),
        ("version: 1\nrules:\n  - candidate: a\n    reference: b\n  - candidate: a\n    reference: c\n", 5, "claimed"),
        ("version: 1\nrules:\n  - candidate: a\n    reference: [b, c]\n", 3, "lacks 'combine'"),
        ("version: 1\nrules:\n\t- candidate: a\n", 3, "tab"),
        ("version: 1\nversion: 1\nrules: []\n", 2, "twice"),
        ("version: 1\nrules:\n  - candidate: a\n", 3, "lacks 'reference'"),
    ],
)
def test_a_bad_mapping_names_file_line_and_way_out(tmp_path: Path, text: str, line: int, says: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(MappingError) as caught:
        read_mapping(path)
    assert str(caught.value).startswith(f"{path}:{line}:")
    assert says in str(caught.value)


def test_a_rule_that_matches_nothing_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    mapping = read_mapping(write(tmp_path, "version: 1\nrules:\n  - candidate: model.mpl\n    reference: model.mlp\n"))
    with pytest.raises(MappingError, match=r"Did you mean .model\.mlp."):
        mapping.check_used(["model.mlp"], ["model.mlp"])
