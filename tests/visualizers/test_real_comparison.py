"""All formats on comparisons that the engine made of two recorded trainings."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import pytest

import msprobe
from msprobe.visualizers.csv import Csv
from msprobe.visualizers.html import Html
from msprobe.visualizers.json import Json
from msprobe.visualizers.junit import JUnit
from msprobe.visualizers.markdown import Markdown
from msprobe.visualizers.parquet import Parquet
from msprobe.visualizers.table import Table

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison

torch = pytest.importorskip("torch")


def train(path: Path, *, scale: float = 1.0) -> Path:
    """Records two steps of a small network whose third module computes something else where ``scale`` is not 1."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 32), torch.nn.Linear(32, 1)
    )
    plain = model[2].forward
    model[2].forward = lambda x: plain(x) * scale
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with msprobe.record(model, path, optimizer=optimizer):
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(8, 16)).square().mean().backward()
            optimizer.step()
    return path


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("runs")
    return msprobe.compare(train(folder / "candidate", scale=1.001), train(folder / "reference"))


@pytest.fixture(scope="module")
def same(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    folder = tmp_path_factory.mktemp("runs")
    return msprobe.compare(train(folder / "candidate"), train(folder / "reference"))


def test_the_faulty_module_is_the_first_thing_said(faulty: Comparison) -> None:
    lines = Table(width=120, colour=False, ascii=True).render(faulty).splitlines()
    assert lines[0].startswith("# introduced")
    source = lines.index("Independent sources")
    assert lines[source + 2].split()[:3] == ["1", "#", "2"]


def test_equal_runs_are_told_as_clean(same: Comparison) -> None:
    text = Table(width=120, colour=False, ascii=True).render(same)
    assert text.splitlines()[0] == "o clean"
    assert "Most telling" not in text


def test_csv_and_parquet_hold_every_pair(faulty: Comparison) -> None:
    rows = list(csv.DictReader(io.StringIO(Csv().render(faulty).decode(), newline="")))
    assert len(rows) == len(faulty)
    assert [row["verdict"] for row in rows] == faulty.pairs["verdict"].tolist()
    assert Parquet().render(faulty).startswith(b"PAR1")


def test_junit_fails_the_faulty_module(faulty: Comparison) -> None:
    root = ElementTree.fromstring(JUnit().render(faulty).encode())
    failed = {case.get("name") for case in root.iter("testcase") if case.find("failure") is not None}
    assert {"run verdict", "2"} <= failed
    assert "0" not in failed


def test_json_and_markdown_and_page_say_the_same_sentence(faulty: Comparison) -> None:
    sentence = faulty.summary.sentence
    assert json.loads(Json().render(faulty))["sentence"] == sentence
    assert sentence.split(":")[0].replace("(", "\\(").replace(")", "\\)") in Markdown().render(faulty)
    assert "introduced" in Html().render(faulty)


def test_an_excel_workbook_opens(faulty: Comparison) -> None:
    pytest.importorskip("xlsxwriter")
    from msprobe.visualizers.xlsx import Xlsx

    assert Xlsx().render(faulty).startswith(b"PK")
