import pytest

from msprobe.core.comparison import Comparison
from msprobe.visualizers.marks import MARKS
from msprobe.visualizers.table import Table
from msprobe.visualizers.wording import width_of
from tests.visualizers.conftest import make_comparison, transformer_rows

PLAIN = {"colour": False, "ascii": False}


def test_the_verdict_is_the_first_line_and_the_sentence_the_second(introduced: Comparison) -> None:
    lines = Table(width=120, **PLAIN).render(introduced).splitlines()
    assert lines[0] == "\N{BLACK DIAMOND} introduced, 1 independent source"
    assert lines[1].strip().startswith("The first error that rounding does not explain")


def test_a_source_shows_its_error_beside_its_bound(introduced: Comparison) -> None:
    text = Table(width=120, **PLAIN).render(introduced)
    assert "error 412 eps, bound 6.20 eps, 66.5 times the bound" in text
    assert "- its inputs agree: input 0 within 2.8 eps, weight equal" in text


@pytest.mark.parametrize("width", [64, 72, 80, 100, 120, 200])
def test_no_line_of_the_table_is_wider_than_the_terminal(introduced: Comparison, width: int) -> None:
    table = Table(width=width, **PLAIN).render(introduced).partition("Most telling pairs")[2].splitlines()[1:]
    assert len(table) == 10
    assert max(width_of(line) for line in table) <= width
    assert all("o_proj" in line or "introduced" not in line for line in table)


def test_every_verdict_reads_without_colour(introduced: Comparison) -> None:
    text = Table(width=120, colour=False, ascii=True).render(introduced)
    assert text.isascii()
    assert len({mark.glyph for mark in MARKS}) == len(MARKS)
    assert len({mark.ascii for mark in MARKS}) == len(MARKS)


def test_colour_only_where_asked(introduced: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" in Table(width=120, colour=True).render(introduced)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in Table().render(introduced)


def test_names_from_a_run_cannot_command_the_terminal(hostile: Comparison) -> None:
    text = Table(width=120, **PLAIN).render(hostile)
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_not_measured_and_not_finite_differ(introduced: Comparison) -> None:
    table = Table(width=200, **PLAIN).render(introduced).partition("Most telling pairs")[2].splitlines()
    assert "NaN 12|0" in next(line for line in table if "NaN in the candidate" in line)
    unmatched = next(line for line in table if "model.extra" in line)
    assert unmatched.split("output 0")[1].split()[:4] == ["0", "0", "-", "-"]


def test_a_clean_comparison_is_short(clean: Comparison) -> None:
    text = Table(width=120, **PLAIN).render(clean)
    assert "Most telling" not in text
    assert "Independent sources" not in text
    assert len(text.splitlines()) < 20


def test_nothing_to_compare_is_said(empty: Comparison) -> None:
    assert "nothing in common" in Table(width=120, **PLAIN).render(empty)


def test_a_story_with_many_sources_stays_short() -> None:
    rows = transformer_rows(30, 0)
    for row in rows:
        row["verdict"] = "introduced"
    text = Table(width=120, limit=5, **PLAIN).render(make_comparison(rows))
    assert f"and {len(rows) - 8} more (summary.json lists all)" in text
    assert len(text.splitlines()) < 90
