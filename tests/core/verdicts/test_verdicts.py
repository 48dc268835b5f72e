"""Seeded faults in a network whose data flow is known: the verdict names the seeded place."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from msprobe.core.comparing import compare_runs

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison

Record = Callable[..., Path]
Edit = Callable[[str, int, Any], Any]


def edit_at(place: str, change: Callable[[Any], Any], *, step: int | None = None) -> Edit:
    return lambda where, at, value: change(value) if where == place and step in (None, at) else value


def noise(size: float) -> Callable[[Any], Any]:
    def change(value: Any) -> Any:
        random = np.random.default_rng(7).standard_normal(value.shape)
        return (value + size * np.std(value) * random).astype(value.dtype)

    return change


def rounding(where: str, step: int, value: Any) -> Any:
    """Moves every computed value by one rounding or none: what other kernels do."""
    if value.dtype != np.float32 or "parameter" in where or where == "forward input ":
        return value
    random = np.random.default_rng(abs(hash((where, step))) % 2**32).integers(-1, 2, value.shape)
    return (value * (1 + random * np.float32(2.0**-24))).astype(np.float32)


@pytest.mark.parametrize("what", [("statistics", "sketch"), ("statistics", "tensors"), ("statistics", "checksums")])
def test_two_equal_runs_are_clean(record: Record, what: tuple[str, ...]) -> None:
    comparison = compare_runs(record("a", what=what), record("b", what=what))
    assert comparison.summary.verdict == "clean"
    assert comparison.summary.exit_code == 0
    assert comparison.summary.coverage.judged_share == 1.0


def test_rounding_everywhere_is_clean_and_judged(record: Record) -> None:
    comparison = compare_runs(record("a", rounding, steps=4), record("b", steps=4))
    assert comparison.summary.verdict == "clean", comparison.summary.sentence
    assert comparison.summary.coverage.judged_share == 1.0
    assert comparison.summary.counts["normal"] > 100


@pytest.mark.parametrize("size", [1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize(
    "place", ["forward output layers.1.mlp.down", "forward output layers.2.norm", "forward output layers.0.mlp.up"]
)
@pytest.mark.parametrize("what", [("statistics", "sketch"), ("statistics", "tensors")])
def test_noise_is_found_at_its_module(record: Record, size: float, place: str, what: tuple[str, ...]) -> None:
    comparison = compare_runs(record("a", edit_at(place, noise(size)), what=what), record("b", rounding, what=what))
    (source, *others) = comparison.summary.sources
    assert not others
    assert f"forward output {source.node}" == place
    assert comparison.summary.exit_code == 1


def test_a_difference_between_modules_is_the_containers_own_code(record: Record) -> None:
    comparison = compare_runs(record("a", edit_at("forward input layers.1.mlp.down", noise(1e-3))), record("b"))
    (source,) = comparison.summary.sources
    assert (source.node, source.own_code) == ("layers.1.mlp", True)
    assert "own code" in source.sentence


def test_a_wrong_weight_is_named_before_what_it_spoils(record: Record) -> None:
    place = "forward parameter layers.1.mlp.up"
    comparison = compare_runs(record("a", edit_at(place, noise(1e-3), step=0)), record("b"))
    (source,) = comparison.summary.sources
    assert (source.node, source.role, source.step) == ("layers.1.mlp.up", "parameter", 0)


def test_a_scaled_gradient_is_found_in_backward_with_its_factor(record: Record) -> None:
    place = "backward output layers.1.mlp.up"
    comparison = compare_runs(record("a", edit_at(place, lambda g: g * np.float32(2))), record("b"))
    (source,) = comparison.summary.sources
    assert (source.node, source.direction) == ("layers.1.mlp.up", "backward")
    assert any("exactly 2 times" in text for text in source.evidence)


def test_two_independent_faults_are_two_sources(record: Record) -> None:
    def both(where: str, step: int, value: Any) -> Any:
        change = noise(1e-2)
        forward = where == "forward output layers.2.mlp.up"
        return change(value) if forward or (step == 0 and where == "forward parameter layers.0.mlp.down") else value

    nodes = [source.node for source in compare_runs(record("a", both), record("b")).summary.sources]
    assert nodes[0] == "layers.0.mlp.down"
    assert set(nodes) <= {"layers.0.mlp.down", "layers.2.mlp.up"}


def test_nan_on_one_side_is_found_where_it_arises(record: Record) -> None:
    def poison(value: Any) -> Any:
        value = value.copy()
        value[0, 0] = np.nan
        return value

    comparison = compare_runs(record("a", edit_at("forward output layers.1.mlp.up", poison)), record("b"))
    assert comparison.summary.sources[0].node == "layers.1.mlp.up"
    assert any("NaN: 1 in the candidate, 0 in the reference" in text for text in comparison.summary.sources[0].evidence)


def test_opposite_infinities_are_no_match(record: Record) -> None:
    def infinite(sign: float) -> Callable[[Any], Any]:
        def change(value: Any) -> Any:
            value = value.copy()
            value[0, 0] = sign * np.inf
            return value

        return change

    place = "forward output layers.2.mlp.down"
    comparison = compare_runs(
        record("a", edit_at(place, infinite(1)), steps=1), record("b", edit_at(place, infinite(-1)), steps=1)
    )
    assert comparison.summary.sources[0].node == "layers.2.mlp.down"


def test_a_missing_zero_grad_is_called_so(record: Record) -> None:
    before: dict[str, Any] = {}

    def accumulate(where: str, step: int, value: Any) -> Any:
        if not where.startswith("update"):
            return value
        before[where] = value + before.get(where, 0)
        return before[where].astype(np.float32)

    comparison = compare_runs(record("a", accumulate, steps=3), record("b", steps=3))
    (source, *_) = comparison.summary.sources
    assert source.step == 1
    assert any("zero_grad is missing" in text for text in source.evidence)


def test_a_swapped_order_of_elements_is_seen_by_the_sketch(record: Record) -> None:
    place = "forward output layers.1.mlp.up"
    comparison = compare_runs(record("a", edit_at(place, lambda v: v[:, ::-1].copy())), record("b"))
    assert comparison.summary.sources[0].node == "layers.1.mlp.up"


def rows_of(comparison: Comparison, **where: Any) -> np.ndarray:
    hit = np.ones(len(comparison), dtype=bool)
    for column, value in where.items():
        hit &= comparison.pairs[column] == value
    return np.flatnonzero(hit)


def test_what_follows_from_a_fault_is_inherited_not_introduced(record: Record) -> None:
    comparison = compare_runs(
        record("a", edit_at("forward output layers.0.norm", noise(1e-2)), steps=1), record("b", steps=1)
    )
    later = rows_of(comparison, candidate_node="layers.2.mlp.down", direction="forward", role="output")
    assert comparison.pairs["verdict"][later].tolist() == ["inherited"]
    assert comparison.summary.counts["introduced"] == 1


def test_a_missing_step_is_a_finding(record: Record) -> None:
    comparison = compare_runs(record("a", steps=2), record("b", steps=4))
    assert ("missing step", "The candidate lacks steps 2, 3: not compared.") in [
        (finding.kind, finding.text) for finding in comparison.summary.findings
    ]


def test_a_noise_run_sets_what_is_normal(record: Record) -> None:
    place = "forward output layers.1.mlp.up"
    candidate, reference = record("a", edit_at(place, noise(1e-4))), record("b")
    assert compare_runs(candidate, reference).summary.verdict == "introduced"
    loud = record(
        "n",
        lambda where, step, value: (
            noise(2e-3)(value) if "output" in where or "gradient" in where or "input" in where else value
        ),
    )
    assert compare_runs(candidate, reference, noise=loud).summary.verdict != "introduced"


def test_a_golden_run_asks_who_is_further_from_it(record: Record) -> None:
    place = "forward output layers.1.mlp.up"
    gold = record("gold", steps=1)
    bad, good = record("a", edit_at(place, noise(1e-2)), steps=1), record("b", edit_at(place, noise(1e-3)), steps=1)
    assert compare_runs(bad, good, golden=gold).summary.sources[0].node == "layers.1.mlp.up"
    assert compare_runs(good, bad, golden=gold).summary.verdict != "introduced"


def test_nan_that_spreads_is_inherited(record: Record) -> None:
    def poison(value: Any) -> Any:
        value = value.copy()
        value[3, 3] = np.nan
        return value

    comparison = compare_runs(record("a", edit_at("forward output layers.0.mlp.up", poison)), record("b"))
    assert comparison.summary.counts["introduced"] == 1
    assert comparison.summary.counts["suspect"] == 0
    assert comparison.summary.counts["inherited"] > 20


def test_weights_apart_by_one_rounding_are_normal_and_by_bf16_are_not(record: Record) -> None:
    def to_bf16(value: Any) -> Any:
        return (value.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)

    place = "forward parameter layers.1.mlp.up"
    reference = record("b", steps=1)
    by_one = record("one", edit_at(place, lambda w: np.nextafter(w, np.float32(9))), steps=1)
    assert compare_runs(by_one, reference).summary.verdict == "clean"
    source = compare_runs(record("bf16", edit_at(place, to_bf16), steps=1), reference).summary.sources[0]
    assert (source.node, source.role) == ("layers.1.mlp.up", "parameter")


def test_the_factor_is_found_without_sketches_too(record: Record) -> None:
    place, what = "backward output layers.1.mlp.up", ("statistics", "tensors")
    comparison = compare_runs(
        record("a", edit_at(place, lambda g: g * np.float32(2)), what=what), record("b", what=what)
    )
    assert any("exactly 2 times" in text for text in comparison.summary.sources[0].evidence)


def test_a_comparator_that_fails_is_a_finding_and_ends_nothing(record: Record) -> None:
    class Picky:
        name, better, formula, source = "picky", "lower", "", ""

        def compare(self, candidate: Any, reference: Any) -> float:
            raise ValueError("not this one")

    what = ("statistics", "tensors")
    comparison = compare_runs(record("a", what=what), record("b", what=what), comparators=[Picky()])
    assert comparison.summary.verdict == "clean"
    assert np.isnan(comparison.pairs["picky"]).all()
    assert ("comparator", "Comparator picky failed: ValueError: not this one") in [
        (finding.kind, finding.text) for finding in comparison.summary.findings
    ]


def test_a_run_that_stopped_early_is_not_clean(record: Record) -> None:
    summary = compare_runs(record("a", steps=2), record("b", steps=4)).summary
    assert (summary.verdict, summary.exit_code) == ("inconclusive", 3)
    assert "The candidate lacks steps 2, 3" in summary.sentence
    chosen = compare_runs(record("c", steps=2), record("d", steps=4), steps=((0, 2),)).summary
    assert (chosen.verdict, chosen.exit_code) == ("clean", 0)


def test_an_update_from_agreeing_gradients_is_the_optimizers(record: Record) -> None:
    def larger(where: str, step: int, value: Any) -> Any:
        return (value * 1.01).astype(np.float32) if where.startswith("forward parameter") and step > 0 else value

    (source, *others) = compare_runs(record("a", larger), record("b")).summary.sources
    assert source.sentence.startswith("The optimizer updates the parameters of 6 modules otherwise")
    assert (source.node, source.step) == ("", 1)
    assert not others


def test_the_bound_of_a_row_is_the_one_it_was_held_to(record: Record) -> None:
    pairs = compare_runs(record("a", edit_at("forward output layers.0.norm", noise(1e-2))), record("b")).pairs
    judged = np.isin(pairs["verdict"], ("normal", "inherited"))
    assert (pairs["error"][judged] <= pairs["bound"][judged]).all()
    beyond = np.isin(pairs["verdict"], ("introduced", "suspect"))
    assert (pairs["error"][beyond] > pairs["bound"][beyond]).all()


def test_another_batch_blames_nobody(record: Record) -> None:
    smaller = record("smaller", edit_at("forward input ", lambda batch: batch[: len(batch) // 2]), steps=3)
    comparison = compare_runs(smaller, record("reference", steps=3))
    summary = comparison.summary
    assert (summary.verdict, summary.exit_code, summary.sources) == ("inconclusive", 3, ())
    good = comparison.rows("normal")
    found = set(zip(comparison.pairs["role"][good].tolist(), comparison.pairs["step"][good].tolist(), strict=True))
    assert found == {("parameter", 0)}, "nothing after the first update is known"
