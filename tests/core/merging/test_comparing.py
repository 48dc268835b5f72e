"""Runs on different meshes compare as whole models; what goes wrong on one rank is found and named."""

from __future__ import annotations

import shutil
from functools import partial

import numpy as np
import pytest

from msprobe.core.comparing import compare_runs
from msprobe.core.errors import LayoutError
from msprobe.core.sites import Role

from .cutting import ALL, NO_TENSORS, Seen, write_one, write_ranks
from .model import BACKWARD, EDGES, FORWARD, UPDATE, Fault, cut, whole

MESHES = {
    "TP2": {"tp": 2},
    "DP2": {"dp": 2},
    "FSDP2": {"fsdp": 2},
    "HSDP": {"dp": 2, "fsdp": 2},
    "DP2 x TP2": {"dp": 2, "tp": 2},
    "FSDP2 x TP2": {"fsdp": 2, "tp": 2},
    "CP2, zigzag": {"cp": 2},
    "DP2 x CP2 x TP2": {"dp": 2, "cp": 2, "tp": 2},
}


def write(path, sizes, fault=None, what=ALL):
    return write_ranks(path, sizes, lambda place: cut(sizes, place, fault), what=what, edges=EDGES)


@pytest.fixture
def one(tmp_path):
    return write_one(tmp_path / "one", whole(), edges=EDGES)


@pytest.mark.parametrize("what", [ALL, NO_TENSORS], ids=["tensors", "sketches"])
@pytest.mark.parametrize("sizes", MESHES.values(), ids=MESHES)
def test_a_run_on_a_mesh_agrees_with_the_same_on_one_rank(sizes, what, one, tmp_path):
    comparison = compare_runs(write(tmp_path / "many", sizes, what=what), one)
    assert comparison.summary.verdict == "clean", comparison.summary.sentence
    assert comparison.summary.coverage.matched_share == 1.0
    assert comparison.summary.coverage.judged_share == 1.0


def test_two_different_meshes_agree_and_equal_bits_are_seen_without_tensors(tmp_path):
    sides = [
        write(tmp_path / name, sizes, what=NO_TENSORS)
        for name, sizes in (("candidate", {"tp": 2, "dp": 2}), ("reference", {"fsdp": 2}))
    ]
    comparison = compare_runs(*sides)
    assert comparison.summary.verdict == "clean"
    parameters = comparison.pairs["role"] == "parameter"
    assert set(comparison.pairs["verdict"][parameters]) == {"equal"}
    assert set(comparison.pairs["error_kind"][parameters]) == {"checksum"}


def test_pipeline_tensor_and_data_parallel_at_once(one, tmp_path):
    sizes = {"pp": 2, "dp": 2, "tp": 2}
    stage_of = {("", Role.INPUT): 0, ("", Role.OUTPUT): 1}

    def look(place):
        for seen in cut(sizes, place):
            if stage_of.get((seen.node, seen.role), "ab".find(seen.node)) == place["pp"]:
                yield seen

    flows = [tuple(e for e in EDGES if {e[0][0], e[1][0]} <= {node, ""}) for node in "ab"]
    here = lambda place: tuple(e for e in flows[place["pp"]] if all(n or r for n, _, r, _ in e))  # noqa: E731
    sites = [{s.site for s in look({"pp": stage, "dp": 0, "tp": 0})} for stage in range(2)]
    many = write_ranks(
        tmp_path / "many",
        sizes,
        look,
        edges=lambda place: tuple(e for e in here(place) if set(e) <= sites[place["pp"]]),
    )
    comparison = compare_runs(many, one)
    assert comparison.summary.verdict == "clean", comparison.summary.sentence
    assert comparison.summary.coverage.matched_share == comparison.summary.coverage.judged_share == 1.0


def flip_one_bit(values):
    changed = values.copy()
    changed.reshape(-1).view(np.uint32)[1] ^= 1
    return changed


def test_one_flipped_bit_in_one_shard_is_seen_without_tensors(one, tmp_path):
    fault = Fault("b", Role.PARAMETER, flip_one_bit, {"tp": 1})
    comparison = compare_runs(write(tmp_path / "many", {"tp": 2}, fault, what=NO_TENSORS), one)
    row = [r for r in comparison.rows("normal") if comparison.pairs["role"][r] == "parameter"]
    assert [comparison.pairs["candidate_node"][r] for r in row] == ["b"]  # one bit is rounding, but not the same bits
    worse = Fault("b", Role.PARAMETER, lambda v: v + np.float32(0.01), {"tp": 1})
    comparison = compare_runs(write(tmp_path / "more", {"tp": 2}, worse, what=NO_TENSORS), one)
    assert comparison.summary.sources[0].node == "b"


@pytest.mark.parametrize("what", [ALL, NO_TENSORS], ids=["tensors", "sketches"])
def test_a_perturbed_replica_is_found_and_named(what, one, tmp_path):
    fault = Fault("b", Role.PARAMETER, lambda v: v * 1.01, {"dp": 1, "tp": 0})
    comparison = compare_runs(write(tmp_path / "many", {"dp": 2, "tp": 2}, fault, what=what), one)
    source = comparison.summary.sources[0]
    assert (source.node, source.role, source.ranks) == ("b", "parameter", (2,))
    assert source.sentence.endswith("on rank 2 (dp 1, tp 0) only.")
    (finding,) = [f.text for f in comparison.summary.findings if f.kind == "replica"]
    assert "rank 2 (dp 1, tp 0) differs from rank 0 (dp 0, tp 0) along axis dp" in finding


@pytest.mark.parametrize("right", range(4))
def test_all_ranks_that_drew_their_own_noise_are_named(right, tmp_path):
    """Each rank starts from its own noise, but one from the same as the run on one rank."""
    noise = np.random.default_rng(9).standard_normal((4, 2, 8)).astype(np.float32)
    one = write_one(tmp_path / "one", [Seen("", noise[right], role=Role.INPUT)], what=NO_TENSORS)
    look = lambda place: [Seen("", noise[place["tp"]], role=Role.INPUT)]  # noqa: E731
    comparison = compare_runs(write_ranks(tmp_path / "many", {"tp": 4}, look, what=NO_TENSORS), one)
    (source,) = comparison.summary.sources
    assert source.ranks == tuple(rank for rank in range(4) if rank != right)
    assert source.sentence.startswith("The model's input 0 differs at step 0, on ranks ")


def test_replicas_are_checked_where_both_meshes_are_one_too(tmp_path):
    fault = Fault("b", Role.PARAMETER, lambda v: v * 1.01, {"dp": 1})
    sides = [write(tmp_path / name, {"dp": 2}, fault) for name in ("candidate", "reference")]
    comparison = compare_runs(*sides)
    told = [f.text for f in comparison.summary.findings if f.kind == "replica"]
    assert [text.split(" that ")[0] for text in told] == ["Ranks of the candidate", "Ranks of the reference"]
    assert comparison.summary.verdict == "clean"  # both sides are wrong alike


def test_replicas_that_differ_in_bits_alone_are_told_with_rank_and_place(one, tmp_path):
    fault = Fault("b", Role.PARAMETER, lambda v: np.nextafter(v, np.float32(9)), {"dp": 1})
    findings = compare_runs(write(tmp_path / "many", {"dp": 2}, fault), one).summary.findings
    (told,) = [finding.text for finding in findings if finding.kind == "replica"]
    assert told.startswith("1 of ")
    assert told.endswith("(ranks 1), first at the forward parameter weight of b, step 0.")


def test_shards_in_the_wrong_order_are_a_wrong_parameter(one, tmp_path):
    sizes = {"tp": 2}

    def look(place):
        for right, wrong in zip(cut(sizes, place), cut(sizes, {"tp": 1 - place["tp"]}), strict=True):
            swapped = (right.node, right.role) == ("a", Role.PARAMETER)
            yield right.with_values(wrong.values) if swapped else right

    comparison = compare_runs(write_ranks(tmp_path / "many", sizes, look, edges=EDGES), one)
    assert (comparison.summary.sources[0].node, comparison.summary.sources[0].role) == ("a", "parameter")


def test_a_fault_in_one_shard_names_its_rank_where_tensors_were_saved(one, tmp_path):
    fault = Fault("a", Role.PARAMETER, lambda v: v * 1.5, {"tp": 1})
    comparison = compare_runs(write(tmp_path / "many", {"tp": 2}, fault), one)
    assert comparison.summary.sources[0].sentence.endswith("on rank 1 (tp 1) only.")


def test_a_missing_all_reduce_on_one_rank_is_found_there(one, tmp_path):
    fault = Fault("b", Role.OUTPUT, lambda v: v * 0.5, {"tp": 1})
    comparison = compare_runs(write(tmp_path / "many", {"tp": 2}, fault), one)
    source = comparison.summary.sources[0]
    assert (source.node, source.role, source.ranks) == ("b", "output", (1,))


@pytest.mark.parametrize("factor", [2.0, 0.5])
def test_a_gradient_scaled_by_the_size_of_an_axis_says_which(factor, one, tmp_path):
    scale = lambda v: v * np.float32(factor)  # noqa: E731
    sizes = {"dp": 2, "tp": 2}

    def look(place):
        for seen in cut(sizes, place):
            reduced = seen.role is Role.GRADIENT and seen.direction is UPDATE
            yield seen.with_values(scale(seen.values)) if reduced else seen

    comparison = compare_runs(write_ranks(tmp_path / "many", sizes, look, edges=EDGES), one)
    source = comparison.summary.sources[0]
    assert (source.role, source.direction) == ("gradient", "update")
    assert any("exactly" in line and "the number of ranks along axis dp" in line for line in source.evidence), (
        source.evidence
    )


def test_one_rank_that_goes_wrong_does_not_make_the_others_sources(tmp_path):
    fault = Fault("a", Role.PARAMETER, lambda v: v * 1.5, {"tp": 1})
    sizes = {"tp": 2}

    def spoiled(place):
        """Rank 1 has a wrong weight; the sum over ranks makes the output wrong on both."""
        for seen in cut(sizes, place, fault):
            summed = seen.direction is FORWARD and seen.node in ("b", "") and seen.role is Role.OUTPUT
            between = place["tp"] == 1 and (seen.node, seen.role) in (("a", Role.OUTPUT), ("b", Role.INPUT))
            spoils = summed or seen.direction is not FORWARD or between
            yield seen.with_values(seen.values * np.float32(1.2)) if spoils else seen

    sides = (
        write_ranks(tmp_path / "candidate", sizes, spoiled, edges=EDGES),
        write(tmp_path / "reference", sizes),
    )
    comparison = compare_runs(*sides)
    (source,) = comparison.summary.sources
    assert (source.node, source.ranks) == ("a", (1,))
    assert source.sentence.endswith("on rank 1 (tp 1) only.")
    passed = "its sources agree on this rank, but differ on a rank that has a part in it"
    assert passed in set(comparison.pairs["reason"])


def test_merging_can_be_asked_for_and_refused(tmp_path):
    sides = [write(tmp_path / name, {"tp": 2}) for name in ("candidate", "reference")]
    assert set(compare_runs(*sides).pairs["rank"]) == {0, 1}
    assert set(compare_runs(*sides, merge=True).pairs["rank"]) == {0}


def test_a_missing_rank_does_not_keep_the_others_from_being_compared_one_by_one(tmp_path):
    sides = [write(tmp_path / name, {"tp": 2}) for name in ("candidate", "reference")]
    shutil.rmtree(sides[1] / "ranks" / "00001")
    comparison = compare_runs(*sides)
    assert set(comparison.pairs["rank"]) == {0}
    assert "The reference lacks rank 1: not compared." in {finding.text for finding in comparison.summary.findings}
    whole = compare_runs(*sides, merge=True)
    cut = whole.pairs["role"] == "parameter"
    assert set(whole.pairs["verdict"][cut]) == {"inconclusive"}
    assert "24 of 48 elements were recorded on no rank" in whole.pairs["reason"][cut][0]


def test_merging_without_a_mesh_says_what_to_do(one, tmp_path):
    sizes = {"dp": 2}
    many = write_ranks(tmp_path / "many", sizes, lambda place: cut(sizes, place), mesh={}, edges=EDGES)
    with pytest.raises(LayoutError, match="--dp 2 or --tp 2, or record again"):
        compare_runs(many, one, merge=True)
    findings = compare_runs(many, one).summary.findings
    assert any("To compare it as a whole, say so" in finding.text for finding in findings)


def test_a_local_gradient_that_waits_for_its_reduction_is_no_difference(one, tmp_path):
    comparison = compare_runs(write(tmp_path / "many", {"dp": 2}), one)
    rows = (comparison.pairs["role"] == "gradient") & (comparison.pairs["direction"] == BACKWARD.value)
    assert set(comparison.pairs["verdict"][rows]) <= {"normal", "equal"}
    assert np.isnan(comparison.pairs["candidate_norm"][rows]).all()  # of a sum only the sketch is known


def test_floors_are_measured_on_merged_runs_too(one, tmp_path):
    """A repetition and a golden run of the reference, on other meshes than the reference."""
    fault = Fault("b", Role.OUTPUT, lambda v: v * np.float32(1 + 3e-6), {})
    candidate = write(tmp_path / "candidate", {"tp": 2}, fault)
    assert compare_runs(candidate, one).summary.verdict == "introduced"
    noise = write(tmp_path / "noise", {"dp": 2}, fault)
    held = compare_runs(candidate, one, noise=noise)
    assert held.summary.verdict == "clean"
    assert "noise" in set(held.pairs["bound_source"])
    golden = write(tmp_path / "golden", {"dp": 2})
    judged = compare_runs(candidate, one, golden=golden)
    assert judged.summary.verdict == "introduced"
    assert "golden" in set(judged.pairs["bound_source"])


@pytest.mark.parametrize(("error", "verdict"), [(2e-7, "normal"), (1e-2, "inherited")])
def test_a_sum_that_cancels_is_explained_by_the_rounding_of_other_ranks(error, verdict, tmp_path):
    """Rank 0's own gradient has the same bits and is small, the sum differs by what rank 1's own does."""
    mesh = {"dp": 4}
    large = 1e4 * np.ones((8, 6), dtype=np.float32)

    def look(error, place):
        for seen in cut(mesh, place):
            if seen.node == "a" and seen.role is Role.GRADIENT:
                faulty = large * np.float32(error)
                change = (0 * large, large + faulty, -large, 0 * large)[place["dp"]]
                change = change if seen.direction is BACKWARD else faulty
                seen = seen.with_values((seen.values + change).astype(np.float32))
            yield seen

    sides = [
        write_ranks(tmp_path / name, mesh, partial(look, size), what=NO_TENSORS, edges=EDGES)
        for name, size in (("candidate", error), ("reference", 0.0))
    ]
    pairs = compare_runs(*sides).pairs
    rows = (pairs["direction"] == UPDATE.value) & (pairs["candidate_node"] == "a") & (pairs["rank"] == 0)
    assert pairs["error"][rows][0] > 1e-5
    assert set(pairs["verdict"][rows]) == {verdict}
