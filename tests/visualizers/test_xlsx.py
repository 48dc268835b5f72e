import io
import re
import sys
import zipfile
from xml.etree import ElementTree

import pytest

from msprobe.core.comparison import PAIR_COLUMNS, Comparison
from msprobe.core.errors import PluginError
from msprobe.visualizers import xlsx
from msprobe.visualizers.xlsx import Xlsx

SPACE = {"x": "http://schemas.openxmlformats.org/spreadsheetml/2006/main"}


def sheet(content: bytes, number: int) -> list[list[str]]:
    """Reads a sheet's cells as text, in order of columns; empty cells are left out."""
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        root = ElementTree.fromstring(book.read(f"xl/worksheets/sheet{number}.xml"))
    rows = root.findall("x:sheetData/x:row", SPACE)
    return [["".join(cell.itertext()) for cell in row.findall("x:c", SPACE)] for row in rows]


@pytest.fixture(autouse=True)
def _needs_xlsxwriter(request: pytest.FixtureRequest) -> None:
    if "missing" not in request.node.name:
        pytest.importorskip("xlsxwriter")


def test_the_story_and_the_pairs_are_two_sheets(introduced: Comparison) -> None:
    content = Xlsx().render(introduced)
    assert sheet(content, 1)[0] == ["verdict", "introduced"]
    pairs = sheet(content, 2)
    assert pairs[0] == list(PAIR_COLUMNS)
    assert len(pairs) == len(introduced) + 1
    assert "model.layers.3.self_attn.o_proj" in pairs[1]


def test_numbers_that_excel_cannot_hold_are_text(introduced: Comparison) -> None:
    suspect = next(row for row in sheet(Xlsx().render(introduced), 2) if "NaN in the candidate only" in row)
    assert "+Inf" in suspect
    assert "NaN" in suspect


def test_nothing_is_a_formula_or_a_link(hostile: Comparison) -> None:
    content = Xlsx().render(hostile)
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        text = "".join(book.read(name).decode() for name in book.namelist() if "sheet" in name)
    assert not re.search(r"<f[ >]|<hyperlink", text)
    assert any("=HYPERLINK" in cell for cell in sheet(content, 2)[1])


def test_only_the_worst_are_written_and_it_is_said(introduced: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xlsx, "MOST_ROWS", 5)
    pairs = sheet(Xlsx().render(introduced), 2)
    assert len(pairs) == 7
    assert pairs[-1] == ["The worst 5 of 128 pairs. CSV and Parquet hold all."]
    assert "introduced" in pairs[1]


def test_a_missing_xlsxwriter_is_a_clear_error(introduced: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    with pytest.raises(PluginError, match=r"pip install 'msprobe\[xlsx\]'"):
        Xlsx().render(introduced)


def test_what_was_not_recorded_is_an_empty_cell(introduced: Comparison) -> None:
    row = next(row for row in sheet(Xlsx().render(introduced), 2) if "model.extra" in row)
    assert "NaN" not in row
    assert len(row) < len(PAIR_COLUMNS) - 8
