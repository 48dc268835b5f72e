"""The page about the format tells what the code does."""

from pathlib import Path

from msprobe.core.records import HAS, RECORD_COLUMNS, Status
from msprobe.core.run import layout

PAGE = (Path(__file__).parents[3] / "docs" / "format.md").read_text(encoding="utf-8")


def test_page_lists_every_column_with_type_and_meaning():
    for column in RECORD_COLUMNS:
        width = f"[{column.width}]" if column.width else ""
        row = f"| `{column.name}` | {column.dtype}{width} | {column.wanted_by or 'always'} | {column.meaning} |"
        assert row in PAGE


def test_page_names_version_and_every_file():
    assert f"Schema version {layout.SCHEMA_VERSION}." in PAGE
    for table in (*layout.LINE_FILES, *layout.STREAM_FILES, "segment", "events", "commits"):
        assert f"    {layout.segment_path(Path(), table, 1)} " in PAGE


def test_page_explains_every_column_of_the_catalogue():
    for fields in layout.CATALOGUE.values():
        assert all(f"`{field.name}`" in PAGE for field in fields)


def test_page_explains_codes_in_their_order():
    assert ", ".join(HAS) in PAGE
    assert [s.value for s in Status] == list(range(6))
