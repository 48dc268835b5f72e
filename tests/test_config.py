"""Options and config files: what people write is understood, and each mistake is named with its line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from msprobe.core.config import RecordConfig, load_options
from msprobe.core.documents import read_document
from msprobe.core.errors import ConfigError
from msprobe.core.options import OPTION_NAMES, OptionValues, RecordOptions, parse_option, parse_ranges, parse_size
from msprobe.core.verdicts.constants import Constants


def test_every_option_can_be_given_in_code_and_in_a_file() -> None:
    assert set(OptionValues.__annotations__) == set(OPTION_NAMES)
    assert set(RecordConfig.model_fields) == set(OPTION_NAMES)


def _documented(first: str, last: str) -> dict[str, str]:
    """Gives name and default of each row of the tables between two headings of docs/configuration.md."""
    page = (Path(__file__).parents[1] / "docs" / "configuration.md").read_text(encoding="utf-8")
    part = page.partition(first)[2].partition(last)[0] if last else page.partition(first)[2]
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", part, re.MULTILINE))


def test_every_option_is_documented_with_its_default() -> None:
    rows = _documented("## Options of a recording", "## Constants of a verdict")
    assert tuple(rows) == OPTION_NAMES
    for name, default in rows.items():
        given = default.strip("`")
        value: object = () if given in ("none", "all") else yaml.safe_load(given)
        assert parse_option(name, value) == getattr(RecordOptions(), name), name


def test_every_constant_is_documented_with_its_default() -> None:
    rows = {name: float(text.strip("`")) for name, text in _documented("## Constants of a verdict", "").items()}
    assert rows == Constants().as_dict()


@pytest.mark.parametrize(
    ("text", "ranges"),
    [
        ("", ()),
        ("0", ((0, 1),)),
        ("0,5,10-20,100-", ((0, 1), (5, 6), (10, 21), (100, None))),
        (7, ((7, 8),)),
        ([1, "3-4", (10, 12), (20, None)], ((1, 2), (3, 5), (10, 12), (20, None))),
    ],
)
def test_steps_are_read_in_every_form(text: object, ranges: object) -> None:
    assert parse_ranges(text) == ranges


@pytest.mark.parametrize(("text", "size"), [("0", 0), (5, 5), ("10 kB", 10_000), ("1.5KiB", 1536), ("2g", 2 * 10**9)])
def test_sizes_are_read_with_their_units(text: object, size: int) -> None:
    assert parse_size(text) == size


def test_aliases_and_lists_are_understood() -> None:
    options = RecordOptions.create(
        level="L1", what="statistics + tensors", targets="*.mlp, Linear", ranks="0-2", what_for={"*.attn": "rows"}
    )
    assert options.level == "op"
    assert options.what == {"statistics", "tensors"}
    assert options.targets == ("*.mlp", "Linear")
    assert options.ranks == {0, 1, 2}
    assert options.what_for == (("*.attn", frozenset({"rows"})),)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("levle", "op", "unknown option 'levle'. Did you mean 'level'?"),
        ("level", "modul", "option 'level': unknown level 'modul'. Did you mean 'module'?"),
        ("what", "statistic", "option 'what': unknown what 'statistic'. Did you mean 'statistics'?"),
        ("what", [], "option 'what': nothing named"),
        ("steps", "20-10", "ends before it starts"),
        ("steps", "ten", "'ten' is no step or range"),
        ("steps", [(3, 3)], "is empty"),
        ("ranks", "3-", "has no end"),
        ("every", 0, "the smallest is 1"),
        ("every", True, "no whole number"),
        ("start_step", -1, "no whole number"),
        ("inputs", "yes", "neither true nor false"),
        ("tensor_budget", "12 parsec", "is no size"),
        ("targets", [1], "1 is no name"),
        ("what_for", "x", "no table of patterns"),
    ],
)
def test_a_wrong_option_is_named_with_the_way_out(name: str, value: object, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        RecordOptions.create(**{name: value})
    assert message in str(caught.value)


SAME = RecordOptions.create(level="op", what="statistics,rows", steps=[0, "5-6"], every=2, stacks=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("probe.yaml", "level: L1\nwhat: [statistics, rows]\nsteps: [0, 5-6]\nevery: 2\nstacks: true\n"),
        ("probe.json", '{"level": "L1", "what": ["statistics", "rows"], "steps": "0,5-6", "every": 2, "stacks": true}'),
        ("probe.toml", 'level = "L1"\nwhat = ["statistics", "rows"]\nsteps = "0,5-6"\nevery = 2\nstacks = true\n'),
    ],
)
def test_all_three_kinds_of_file_say_the_same(tmp_path: Path, name: str, text: str) -> None:
    assert load_options(_file(tmp_path, name, text)) == SAME


def test_an_empty_file_means_the_defaults_and_overrides_win(tmp_path: Path) -> None:
    path = _file(tmp_path, "probe.yaml", "# nothing yet\n")
    assert load_options(path) == RecordOptions()
    path.write_text("level: op\nevery: 3\n")
    assert load_options(path, {"level": "mix"}) == RecordOptions(level="mix", every=3)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("level: op\nwhta: rows\n", 2, "unknown option 'whta'. Did you mean 'what'?"),
        ("level: op\n\nlevel: mix\n", 3, "key 'level' is given twice; the first is on line 1"),
        ("level: op\nwhat:\n\t- rows\n", 3, "a tab indents this line"),
        ("every: soon\n", 1, "not 'soon'"),
        ("level: [op\n", 2, "no well-formed YAML"),
        ("targets:\n  - a\n  - 1e-3\n", 3, "not 0.001"),
        ("level: op\nsteps: 9-3\n", 2, "ends before it starts"),
        ("- level\n", 1, "expected a table of options"),
        ("targets: &a [x]\nexclude: *a\n", 1, "anchors and aliases"),
        ("? [a]\n: b\n", 1, "a key must be a word"),
        ("stacks: 'no'\n", 1, "option 'stacks'"),
    ],
)
def test_a_mistake_in_yaml_names_its_line(tmp_path: Path, text: str, line: int, message: str) -> None:
    path = _file(tmp_path, "probe.yaml", text)
    with pytest.raises(ConfigError) as caught:
        load_options(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "line", "message"),
    [
        ("p.json", '{\n "level": "op",\n "levle": "op"\n}', 3, "Did you mean 'level'?"),
        ("p.json", '{\n "level": "op",\n "level": "mix"\n}', 3, "given twice"),
        ("p.json", '{\n "level" "op"\n}', 2, "no well-formed JSON"),
        ("p.toml", 'level = "op"\nevery = 0\n', 2, "the smallest is 1"),
        ("p.toml", 'level = "op"\nlevel = "mix"\n', 2, "no well-formed TOML"),
    ],
)
def test_a_mistake_in_json_and_toml_names_its_line(
    tmp_path: Path, name: str, text: str, line: int, message: str
) -> None:
    path = _file(tmp_path, name, text)
    with pytest.raises(ConfigError) as caught:
        load_options(path)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert message in str(caught.value)


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    path = _file(tmp_path, "probe.yaml", "levle: op\nevery: soon\nstacks: 3\n")
    with pytest.raises(ConfigError) as caught:
        load_options(path)
    assert len(str(caught.value).splitlines()) == 3


@pytest.mark.parametrize("name", ["missing.yaml", "probe.ini"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        load_options(tmp_path / name)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "probe.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_options(path)


def test_yaml_is_read_by_the_rules_of_version_1_2(tmp_path: Path) -> None:
    text = "a: on\nb: 1e-3\nc: 010\nd: no\ne: 1:30\nf: ~\ng: .inf\nh: 0x1F\ni: true\nj: 12_000\nk: 2026-12-01\n"
    content = read_document(_file(tmp_path, "x.yaml", text)).content
    assert content == {
        "a": "on",
        "b": 0.001,
        "c": 10,
        "d": "no",
        "e": "1:30",
        "f": None,
        "g": float("inf"),
        "h": "0x1F",
        "i": True,
        "j": "12_000",
        "k": "2026-12-01",
    }


def test_nested_yaml_remembers_its_lines(tmp_path: Path) -> None:
    document = read_document(_file(tmp_path, "x.yaml", "rules:\n  - a: 1\n    b:\n      c: 2\n"))
    assert document.where("rules", 0, "b", "c").endswith(":4")
    assert document.where("rules", 0, "b", "missing").endswith(":3")


def _file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path
