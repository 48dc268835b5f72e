"""One content is measured once, and never taken for another."""

from __future__ import annotations

import pytest
import torch

from msprobe.adapters.pytorch.contents import Contents
from msprobe.adapters.pytorch.operators import operator_of

STATISTICS = frozenset({"statistics"})


@pytest.fixture
def contents() -> Contents:
    return Contents()


def test_a_tensor_seen_again_is_known_by_its_record(contents):
    x = torch.ones(2, 3)
    contents.look(x, STATISTICS).keep(5)
    assert contents.look(x, STATISTICS).seq == 5
    assert contents.look(x.detach(), STATISTICS).seq == 5


@pytest.mark.parametrize(("what", "seq"), [("statistics", 5), ("sketch", None), ("checksums", None), ("tensors", None)])
def test_a_transposed_view_has_the_same_statistics_and_nothing_else(contents, what, seq):
    x = torch.arange(6.0).view(2, 3)
    contents.look(x, frozenset({what})).keep(5)
    found = contents.look(x.t(), frozenset({what}))
    assert found.seq == seq
    assert found.is_reshaped == (seq is not None)


def test_what_an_operator_wrote_is_new(contents):
    x = torch.ones(4)
    contents.look(x, STATISTICS).keep(5)
    x.data.mul_(2)  # leaves the version of x as it was
    contents.ran(operator_of(torch.ops.aten.mul_.Tensor), [("self", x)], [x])
    assert contents.look(x, STATISTICS).seq is None


def test_records_of_an_earlier_step_are_forgotten(contents):
    x = torch.ones(4)
    contents.look(x, STATISTICS).keep(5)
    contents.new_step()
    assert contents.look(x, STATISTICS).seq is None


def test_the_same_bits_read_as_another_format_are_another_content(contents):
    x = torch.ones(4)
    contents.look(x, STATISTICS).keep(5)
    assert contents.look(x.view(torch.int32), STATISTICS).seq is None
