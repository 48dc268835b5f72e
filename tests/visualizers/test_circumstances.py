"""Of the circumstances people are shown what may explain a difference, and how much they are not shown."""

from __future__ import annotations

import pytest

from msprobe.core.comparison import ContextDifference
from msprobe.visualizers.circumstances import circumstances, shown_value
from msprobe.visualizers.html import Html
from msprobe.visualizers.markdown import Markdown
from msprobe.visualizers.table import Table
from tests.visualizers.conftest import make_comparison, transformer_rows


def _difference(kind: str, name: str, node: str = "", candidate: str = "1", reference: str = "2") -> ContextDifference:
    return ContextDifference(kind, node, name, candidate, reference)


@pytest.mark.parametrize(
    ("kind", "name", "told"),
    [
        ("context", "environment.MASTER_PORT", False),
        ("context", "environment.TORCHELASTIC_RUN_ID", False),
        ("context", "environment.LOCAL_RANK", False),
        ("context", "environment.WORLD_SIZE", True),
        ("context", "environment.NCCL_ALGO", True),
        ("context", "user.RANK", True),
        ("rng", "python", False),
        ("rng", "numpy", False),
        ("rng", "torch.cpu", True),
        ("versions", "numpy", True),
    ],
)
def test_what_differs_in_any_two_launches_is_counted_only(kind: str, name: str, told: bool) -> None:
    found = circumstances([_difference(kind, name)], 12)
    assert len(found.told) == told
    assert ("1 more that differ in any two launches" in found.left_out()) is not told


def test_arguments_of_operators_do_not_crowd_out_the_rest() -> None:
    many = [_difference("argument", "1", f"model/aten.add.{i}") for i in range(30)]
    found = circumstances([*many, _difference("versions", "torch")], 12)
    assert [difference.kind for difference in found.told] == ["argument"] * 8 + ["versions"]
    assert found.left_out() == "and 22 more arguments of operators, in summary.json"


def test_no_more_than_asked_for_are_told() -> None:
    found = circumstances([_difference("versions", str(i)) for i in range(15)], 12)
    assert (len(found.told), found.left_out()) == (12, "and 3 more, in summary.json")


def test_an_argument_without_a_plain_value_is_not_called_absent() -> None:
    argument = _difference("argument", "attention_mask", "model", "null", "(absent)")
    assert shown_value(argument, argument.reference) == "(not recorded as a plain argument)"
    assert shown_value(_difference("versions", "triton"), "(absent)") == "(absent)"


@pytest.mark.parametrize("visualizer", [Table(width=160), Html(), Markdown()], ids=lambda v: v.name)
def test_each_view_counts_what_it_leaves_out(visualizer: Table | Html | Markdown) -> None:
    context = (_difference("context", "environment.MASTER_PORT"), _difference("rng", "python"))
    text = visualizer.render(make_comparison(transformer_rows(1, 0), context=context))
    assert "and 2 more that differ in any two launches, in summary.json" in text
    assert "MASTER_PORT" not in text
