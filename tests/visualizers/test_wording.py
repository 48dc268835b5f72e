import pytest

from msprobe.visualizers.wording import printable, shorten_head, shorten_tail, width_of, wrap


@pytest.mark.parametrize("character", ["\x1b", "\x00", "\n", "\u202e", "\u200b", "\u2028", "\x9b", "\ud800"])
def test_what_would_act_is_shown_instead(character: str) -> None:
    shown = printable(f"a{character}b")
    assert character not in shown
    assert shown.startswith("a\\")
    assert shown.encode()


def test_other_scripts_stay() -> None:
    assert printable("\u5c42.\u00e9") == "\u5c42.\u00e9"


@pytest.mark.parametrize("width", range(1, 40))
@pytest.mark.parametrize("text", ["model.layers.17.self_attn.o_proj", "\u5c42.\u5c42.\u5c42.\u5c42.\u5c42.\u5c42"])
def test_shortened_text_fits(text: str, width: int) -> None:
    assert width_of(shorten_head(text, width)) <= width
    assert width_of(shorten_tail(text, width)) <= width


def test_a_path_keeps_its_end_and_prose_its_start() -> None:
    assert shorten_head("model.layers.17.self_attn.o_proj", 12) == "...tn.o_proj"
    assert shorten_tail("the bound is local", 12) == "the bound..."


def test_prose_breaks_at_spaces_only() -> None:
    assert wrap("one model.layers.17.self_attn two", 10, "  ") == ["  one", "  model.layers.17.self_attn", "  two"]
