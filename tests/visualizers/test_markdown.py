import re

from msprobe.core.comparison import Comparison
from msprobe.visualizers.markdown import Markdown, code, code_cell, escape


def test_it_is_short_and_names_the_source(introduced: Comparison) -> None:
    text = Markdown().render(introduced)
    assert len(text.splitlines()) < 40
    assert "1. `model.layers.3.self_attn.o_proj (Linear)` forward output 0" in text
    assert "error 412 eps, bound 6.20 eps" in text


def test_text_of_a_stranger_is_no_markup(hostile: Comparison) -> None:
    text = Markdown().render(hostile)
    outside = re.sub(r"(?<!\\)(`+) ?.*?(?<!`)\1(?!`)", "", text)
    assert not re.search(r"(?<!\\)<", outside)
    assert "\x1b" not in text


def test_every_special_character_is_escaped() -> None:
    assert escape("a_b*c") == r"a\_b\*c"
    assert escape("@team #1") == r"\@team \#1"


def test_a_code_span_cannot_be_closed_from_inside() -> None:
    assert code("a`b``c") == "```a`b``c```"
    assert code("`a") == "`` `a ``"
    assert code_cell("a|b") == "`a\\|b`"


def test_a_clean_run_has_no_source(clean: Comparison) -> None:
    assert "1." not in Markdown().render(clean).partition("| matched")[0]
