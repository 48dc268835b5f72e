"""Every code block of the documentation runs.

``python`` blocks of a page run in one namespace, ``sh`` blocks in bash, all in one empty folder, in order. A block that
starts with ``sh exit 1`` must end with that code. ``pycon`` blocks are doctests, which pytest runs by itself. Files in
``yaml``, ``toml`` and ``json`` must be well formed. ``text`` is output. A block that cannot run here says why in a
comment before it: ``<!-- not run: needs eight cards -->``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from msprobe.core.toml import tomllib

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "README.zh.md", *sorted((ROOT / "docs").glob("*.md"))]
LANGUAGES = {"python", "pycon", "sh", "yaml", "toml", "json", "text"}
_BLOCK = re.compile(r"(<!-- not run: [^\n]+ -->\n)?^```(\w*)(?: exit (\d+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SECONDS = 120


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    language: str
    exit_code: int
    text: str
    line: int
    runs: bool


def _blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(found[2], int(found[3] or 0), found[4], text.count("\n", 0, found.start(4)) + 1, found[1] is None)
        for found in _BLOCK.finditer(text)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_code_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in _blocks(page):
        place = f"{page.name}:{block.line}"
        assert block.language in LANGUAGES, f"{place}: {block.language or 'no'} is no language of a block here"
        if block.runs:
            _run(block, place, namespace)


def _run(block: Block, place: str, namespace: dict[str, Any]) -> None:
    if block.language == "python":
        exec(compile("\n" * (block.line - 1) + block.text, place, "exec"), namespace)
    elif block.language == "sh":
        done = subprocess.run(
            ["bash", "-e", "-c", block.text], capture_output=True, text=True, check=False, timeout=SECONDS
        )
        assert done.returncode == block.exit_code, f"{place}: {done.stdout}{done.stderr}"
    elif block.language == "yaml":
        yaml.safe_load(block.text)
    elif block.language == "toml":
        tomllib.loads(block.text)
    elif block.language == "json":
        json.loads(block.text)


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
