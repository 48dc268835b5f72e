"""Gradients before and after their reduction over ranks: what it made of them is read off, and checked."""

from __future__ import annotations

import numpy as np
import pytest

from msprobe.core.comparing import compare_runs
from msprobe.core.merging.reductions import check_reductions
from msprobe.core.placement import Layout
from msprobe.core.sites import Role
from msprobe.core.sketches import sketch

from .cutting import NO_TENSORS, Seen, write_one, write_ranks
from .model import BACKWARD, REDUCE

TERMS = {0: 1.0, 1: 3.0}


def write(path, gradient, *, reduced, layout=None, what=NO_TENSORS, size=2):
    """Each data-parallel rank has its own term; after the reduction all hold ``reduced`` times the sum of terms."""

    def look(place):
        local = Seen("a", gradient * np.float32(TERMS[place["dp"]]), BACKWARD, Role.GRADIENT, "weight")
        yield local.cut(layout) if layout is not None else local
        if reduced is not None:
            yield Seen("a", gradient * np.float32(reduced * sum(TERMS.values())), REDUCE, Role.GRADIENT, "weight")

    return write_ranks(path, {"dp": size}, look, what=what)


@pytest.mark.parametrize(("reduced", "expected"), [(1.0, 4.0), (0.5, 2.0)], ids=["sum", "mean"])
def test_an_operation_that_was_not_recorded_is_read_off_the_reduced_gradient(
    reduced, expected, floats, merged, tmp_path
):
    gradient = floats(4, 6)
    whole = merged(write(tmp_path, gradient, reduced=reduced, what=NO_TENSORS | {"tensors"}))
    np.testing.assert_allclose(whole.records["sketch"][0], sketch(expected * gradient), rtol=1e-5)
    np.testing.assert_allclose(whole.tensor(0), expected * gradient, rtol=1e-6)


def test_without_the_reduced_gradient_terms_make_no_whole(floats, merged, tmp_path):
    whole = merged(write(tmp_path, floats(4, 6), reduced=None))
    assert whole.records["has"].tolist() == [0]
    assert whole.reasons == {0: "not known: what the reduction over ranks makes of it was not recorded"}


def test_the_reason_reaches_the_rows_of_a_comparison(floats, tmp_path):
    gradient = floats(4, 6)
    one = write_one(tmp_path / "one", [Seen("a", gradient, BACKWARD, Role.GRADIENT, "weight")], what=NO_TENSORS)
    comparison = compare_runs(write(tmp_path / "many", gradient, reduced=None), one)
    (reason,) = comparison.pairs["reason"]
    assert "what the reduction over ranks makes of it was not recorded" in reason
    assert comparison.summary.verdict == "inconclusive"


@pytest.mark.parametrize(
    ("reduced", "says"),
    [
        (1.0, "is exactly 2 times (the number of ranks along axis dp) the mean of its ranks' gradients"),
        (0.25, "is exactly 1/2 times (the number of ranks along axis dp) the mean of its ranks' gradients"),
        (0.3, "is 0.6 times the mean"),
    ],
)
def test_a_reduction_that_scales_is_a_finding_with_factor_and_axis(reduced, says, floats, merged, tmp_path):
    gradient = floats(4, 6)
    declared = Layout.whole(gradient.shape).partial("dp", "avg")
    whole = merged(write(tmp_path, gradient, reduced=reduced, layout=declared))
    (finding,) = check_reductions("candidate", whole)
    assert says in finding.text
    assert finding.text.endswith("in 1 cases, first a.weight, step 0.")


def test_a_reduction_as_declared_is_no_finding(floats, merged, tmp_path):
    gradient = floats(4, 6)
    declared = Layout.whole(gradient.shape).partial("dp", "avg")
    assert check_reductions("candidate", merged(write(tmp_path, gradient, reduced=0.5, layout=declared))) == []


def test_a_missing_reduction_is_replicas_that_differ(floats, tmp_path):
    gradient = floats(4, 6)

    def look(place):
        term = gradient * np.float32(TERMS[place["dp"]])
        yield Seen("a", term, BACKWARD, Role.GRADIENT, "weight").cut(Layout.whole((4, 6)).partial("dp", "avg"))
        yield Seen("a", term, REDUCE, Role.GRADIENT, "weight")

    many = write_ranks(tmp_path / "many", {"dp": 2}, look, what=NO_TENSORS)
    right = write(tmp_path / "right", gradient, reduced=0.5, layout=Layout.whole((4, 6)).partial("dp", "avg"))
    comparison = compare_runs(many, right)
    told = [f.text for f in comparison.summary.findings if f.kind == "replica"]
    assert len(told) == 1
    assert "rank 1 (dp 1) differs from rank 0 (dp 0) along axis dp, first at the reduce gradient weight of a" in told[0]
