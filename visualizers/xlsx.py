"""Write a workbook: a sheet with the story, and a sheet with the worst pairs.

Rows are streamed (constant memory). Text is never a formula or a link. Excel has no NaN or infinity: they are text;
what was not recorded or measured is an empty cell.
"""

from __future__ import annotations

import io
import math
from typing import TYPE_CHECKING, Any

from msprobe.core.errors import PluginError
from msprobe.visualizers import story
from msprobe.visualizers.marks import MARKS, word
from msprobe.visualizers.numerals import count, number, share
from msprobe.visualizers.rows import known, worst_first
from msprobe.visualizers.wording import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from msprobe.core.comparison import Comparison

#: The worst rows that are written; more makes the workbook slow to open. CSV and Parquet hold all.
MOST_ROWS = 50_000

#: What Excel can hold in one cell.
_LONGEST_TEXT = 32_767

_WIDE = {"candidate_node": 44, "reference_node": 44, "reason": 60, "note": 40}
_FILLS = {
    "introduced": "#FBE5DF",
    "suspect": "#FBF0DC",
    "inherited": "#F7EFD9",
    "normal": "#DCE8F0",
    "equal": "#9FC3E0",
}


class Xlsx:
    """An Excel workbook: the story and the worst pairs."""

    name = "xlsx"
    file_name = "comparison.xlsx"
    summary = "An Excel workbook: the story and the worst 50,000 pairs."

    def render(self, comparison: Comparison) -> bytes:
        """Gives the workbook.

        Raises:
            PluginError: xlsxwriter is not installed.
        """
        try:
            import xlsxwriter
        except ImportError as error:
            raise PluginError(
                "The format xlsx needs xlsxwriter, which is not installed: pip install 'msprobe[xlsx]', or choose csv."
            ) from error
        target = io.BytesIO()
        options = {
            "constant_memory": True,
            "strings_to_formulas": False,
            "strings_to_urls": False,
            "strings_to_numbers": False,
        }
        with xlsxwriter.Workbook(target, options) as workbook:
            _write_story(workbook, comparison)
            _write_pairs(workbook, comparison)
        return target.getvalue()


def _write_story(workbook: Any, comparison: Comparison) -> None:
    sheet = workbook.add_worksheet("Story")
    bold, wrapped = workbook.add_format({"bold": True}), workbook.add_format({"text_wrap": True, "valign": "top"})
    sheet.set_column(0, 0, 24)
    sheet.set_column(1, 1, 110)
    for row, (title, text) in enumerate(_story_lines(comparison)):
        sheet.write_string(row, 0, _cell_text(title), bold)
        sheet.write_string(row, 1, _cell_text(text), wrapped)


def _story_lines(comparison: Comparison) -> Iterator[tuple[str, str]]:
    summary = comparison.summary
    yield "verdict", word(summary.verdict)
    yield "", summary.sentence
    yield "candidate", f"{summary.candidate.path}: {story.run_line(summary.candidate)}"
    yield "reference", f"{summary.reference.path}: {story.run_line(summary.reference)}"
    for name, value, counts in story.coverage_lines(summary):
        yield name, f"{share(value)} ({counts})"
    for mark in MARKS:
        yield mark.verdict, f"{count(summary.counts.get(mark.verdict, 0))} ({mark.meaning})"
    for place, source in enumerate(summary.sources, start=1):
        yield f"source {place}", f"{story.source_name(source)}: {story.source_place(source)}"
        yield "", story.source_error(source)
        for evidence in source.evidence:
            yield "", evidence
    for finding in summary.findings:
        yield finding.kind, finding.text
    for difference in summary.context:
        name = f"{difference.kind} {story.difference_name(difference)}"
        yield "differs", f"{name}: {difference.candidate} | {difference.reference}"
    for name, value in summary.constants.items():
        yield "constant", f"{name} = {value!r}"


def _write_pairs(workbook: Any, comparison: Comparison) -> None:
    sheet = workbook.add_worksheet("Pairs")
    rows = worst_first(comparison.pairs)[:MOST_ROWS]
    fills = {verdict: workbook.add_format({"bg_color": colour}) for verdict, colour in _FILLS.items()}
    names = list(comparison.pairs)
    for place, name in enumerate(names):
        sheet.set_column(place, place, _WIDE.get(name, 13))
    sheet.freeze_panes(1, 0)
    sheet.autofilter(0, 0, max(1, len(rows)), len(names) - 1)
    heading = workbook.add_format({"bold": True})
    for place, name in enumerate(names):
        sheet.write_string(0, place, name, heading)
    shown = {name: column[rows] for name, column in comparison.pairs.items()}
    columns = [_cells(shown[name], known(shown, name)) for name in names]
    verdict_column = names.index("verdict")
    for line, cells in enumerate(zip(*columns, strict=True), start=1):
        for place, cell in enumerate(cells):
            _write(sheet, line, place, cell, fills.get(str(cell)) if place == verdict_column else None)
    if len(rows) < len(comparison):
        note = f"The worst {count(len(rows))} of {count(len(comparison))} pairs. CSV and Parquet hold all."
        sheet.write_string(len(rows) + 1, 0, note)


def _write(sheet: Any, line: int, place: int, cell: str | float | None, form: Any) -> None:
    if cell is None:
        return
    if isinstance(cell, str):
        if cell:
            sheet.write_string(line, place, cell, form)
    else:
        sheet.write_number(line, place, cell)


def _cells(column: NDArray[Any], present: NDArray[np.bool_]) -> list[str | float | None]:
    if column.dtype.kind in "OU":
        return [_cell_text(str(value)) for value in column.tolist()]
    values = zip(column.tolist(), present.tolist(), strict=True)
    return [(value if math.isfinite(value) else number(value)) if here else None for value, here in values]


def _cell_text(text: str) -> str:
    return printable(text)[:_LONGEST_TEXT]
