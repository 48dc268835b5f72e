"""The rules of the house that no linter knows: sizes, names, links."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from msprobe.plugins import read_table

ROOT = Path(__file__).parents[1]
FOLDERS = ("msprobe", "core", "adapters", "comparators", "visualizers", "benchmarks", "tests")
MOST_LINES_OF_A_FILE = 400
MOST_LINES_OF_A_FUNCTION = 50
BANNED_NAMES = {"utils", "util", "common", "base", "helpers", "helper", "manager", "misc"}
TEXTS = ("*.py", "*.md", "*.toml", "*.css", "*.js")


def _sources() -> list[Path]:
    linked = ("msprobe/core", "msprobe/adapters", "msprobe/comparators", "msprobe/visualizers")
    found = (path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    return sorted(p for p in found if not p.relative_to(ROOT).as_posix().startswith(linked))


SOURCES = _sources()


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_a_file_holds_one_idea(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MOST_LINES_OF_A_FILE


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_a_function_fits_a_screen(path: Path) -> None:
    long = [f"{name}: {lines}" for name, lines in _function_lengths(path) if lines > MOST_LINES_OF_A_FUNCTION]
    assert not long


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_no_file_is_called_after_nothing(path: Path) -> None:
    parts = {*path.relative_to(ROOT).with_suffix("").parts}
    words = {word for part in parts for word in part.split("_")}
    assert not words & BANNED_NAMES


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if p.read_text().strip() and p.parts[len(ROOT.parts)] != "tests"], ids=_name
)
def test_a_file_begins_by_saying_what_it_is_for(path: Path) -> None:
    text = ast.get_docstring(ast.parse(path.read_text()))
    assert text
    assert text.splitlines()[0].endswith((".", ":", "?"))


def test_links_of_the_package_are_relative_and_lead_home() -> None:
    links = {path.name: path.readlink() for path in (ROOT / "msprobe").iterdir() if path.is_symlink()}
    expected = ("core", "adapters", "comparators", "visualizers", "plugins.toml")
    assert links == {name: Path("..") / name for name in expected}


def test_a_plugin_alone_in_its_file_gives_the_file_its_name() -> None:
    modules: dict[str, list[str]] = {}
    for plugin in read_table().rows.values():
        if plugin.kind != "adapters":
            modules.setdefault(str(plugin.target).partition(":")[0], []).append(plugin.name)
    alone = {module.rpartition(".")[2]: names[0] for module, names in modules.items() if len(names) == 1}
    assert alone == {stem: stem for stem in alone}


def test_no_machine_or_home_path_is_in_the_tree() -> None:
    pattern = re.compile(r"(?<![\w.])/(?:home|root|Users|opt|work)/\w+")
    for path in (p for text in TEXTS for p in ROOT.glob(f"[!.]*/**/{text}")):
        if not {".venvs", "node_modules"} & set(path.parts):
            assert not pattern.search(path.read_text(errors="replace")), _name(path)


def _function_lengths(path: Path) -> Iterator[tuple[str, int]]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = len((ast.get_docstring(node, clean=False) or "").splitlines())
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1 - docstring
