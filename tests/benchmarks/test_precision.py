"""PrecisionBench in small: faults are found at their place, clean pairs are clean, and the scorer is strict."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import pytest

pytest.importorskip("transformers")

import torch

from benchmarks.precision import edits, effects, report, run, scorer
from benchmarks.precision.architectures import ARCHITECTURES
from benchmarks.precision.cases import CleanCase, FaultCase, clean_cases, fault_cases
from benchmarks.precision.clean import CLEAN, clean_named
from benchmarks.precision.faults import EXPECTED, FAULTS, Place, fault_named
from benchmarks.precision.training import Plan, batches, train
from msprobe.core.comparison import Source

SEED = 20261201
#: Kind of fault, architecture, layer, mode.
FAULT_SAMPLE = (
    ("mlp-noise-1e-4", "llama", 1, "sketch"),
    ("mlp-noise-1e-2", "decoder", 2, "tensor"),
    ("scaled-residual", "qwen2", 0, "sketch"),
    ("wrong-eps", "decoder", 1, "sketch"),
    ("swapped-query-key", "vision", 1, "sketch"),
    ("bf16-island", "llama", 2, "sketch"),
    ("empty-mask", "decoder", 0, "sketch"),
    ("wrong-weight", "qwen2", 1, "sketch"),
    ("doubled-gradient", "decoder", 1, "tensor"),
    ("missing-zero-grad", "vision", 0, "sketch"),
    ("extra-call", "decoder", 1, "sketch"),
)
CLEAN_SAMPLE = (
    ("bf16", "decoder", "sketch"),
    ("autocast", "decoder", "sketch"),
    ("sdpa-plain", "vision", "sketch"),
    ("chunked-linear", "qwen2", "tensor"),
    ("recompute", "decoder", "sketch"),
    ("wrapped", "vision", "sketch"),
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield scorer.Bench(tmp_path_factory.mktemp("bench"))
    torch.set_num_threads(threads)


@pytest.mark.parametrize(("kind", "architecture", "layer", "mode"), FAULT_SAMPLE)
def test_a_fault_is_named_first_at_its_place(bench, kind, architecture, layer, mode):
    outcome = bench.fault(FaultCase(fault_named(kind), ARCHITECTURES[architecture], layer, SEED, mode))
    assert outcome.passed, (outcome.expected, outcome.found, outcome.why)


@pytest.mark.parametrize(("kind", "architecture", "mode"), CLEAN_SAMPLE)
def test_a_clean_pair_is_clean(bench, kind, architecture, mode):
    outcome = bench.clean(CleanCase(clean_named(kind), ARCHITECTURES[architecture], SEED, mode))
    assert outcome.passed, (outcome.verdict, outcome.found, outcome.why)


FITTING = [
    (fault, architecture) for fault in FAULTS for architecture in ARCHITECTURES.values() if fault.fits(architecture)
]


@pytest.mark.parametrize(("fault", "architecture"), FITTING, ids=lambda value: getattr(value, "kind", "") or value.name)
def test_a_fault_changes_its_place_and_nothing_before_it(fault, architecture):
    candidate, reference = (architecture.model(SEED) for _ in range(2))
    if fault.edit:
        fault.edit(candidate, architecture, 1, SEED)
    assert effects.effect(fault, candidate, reference, (architecture, 1, Plan(seed=SEED))) > 0


def test_a_fault_that_does_nothing_is_caught():
    architecture = ARCHITECTURES["decoder"]
    inert = replace(fault_named("mlp-noise-1e-2"), edit=lambda *_: None)
    case = (architecture, 1, Plan())
    with pytest.raises(effects.InertFaultError, match="nothing changes"):
        effects.effect(inert, architecture.model(1), architecture.model(1), case)


def test_a_fault_that_acts_before_its_place_is_caught():
    architecture = ARCHITECTURES["decoder"]
    candidate = architecture.model(1)
    edits.add_noise(candidate.get_submodule("blocks.0.mlp"), 1e-2, 1)
    with pytest.raises(effects.InertFaultError, match="changes the input"):
        effects.effect(fault_named("mlp-noise-1e-2"), candidate, architecture.model(1), (architecture, 1, Plan()))


def test_there_are_twelve_kinds_of_fault_and_thirty_of_clean_pairs():
    assert len(EXPECTED) >= 12
    assert len({clean.kind for clean in CLEAN}) >= 30
    assert all(EXPECTED.values())


def test_every_fault_fits_some_architecture_and_most_fit_three():
    fits = [sum(fault.fits(architecture) for architecture in ARCHITECTURES.values()) for fault in FAULTS]
    assert min(fits) >= 1
    assert sum(count >= 3 for count in fits) >= 12


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_part_is_a_module(name):
    architecture = ARCHITECTURES[name]
    paths = {path for path, _ in architecture.model(1).named_modules()}
    for part in architecture.parts:
        assert {architecture.path(part, layer) for layer in range(architecture.layers)} <= paths


def test_the_same_seed_trains_to_the_same_bits():
    architecture = ARCHITECTURES["decoder"]
    losses = [train(architecture.model(3), architecture, Plan(seed=3)) for _ in range(2)]
    assert losses[0] == losses[1]


def test_accumulation_sees_the_same_samples():
    architecture = ARCHITECTURES["llama"]
    (whole,) = next(batches(architecture, Plan(seed=3)))
    parts = next(batches(architecture, Plan(seed=3, accumulation=2)))
    joined = torch.cat([part.inputs["input_ids"] for part in parts])
    assert torch.equal(joined, whole.inputs["input_ids"])


def test_a_draw_repeats_and_another_differs():
    draws = [
        [case.expectation() for case in fault_cases(draw, seeds=1, architectures=["llama"], modes=["sketch"])]
        for draw in (1, 1, 2)
    ]
    assert draws[0] == draws[1] != draws[2]


def test_cases_travel_between_processes():
    faults, clean = run.quick_cases()
    for case in (*faults, *clean):
        assert pickle.loads(pickle.dumps(case)) == case


def _source(node, **changes):
    fields = {
        "node_class": "", "site": "", "direction": "forward", "role": "output", "argument": "0", "own_code": False,
        "rank": 0, "step": 0, "micro_step": 0, "error": 1.0, "error_eps": 1.0, "bound": 0.0,
        "verdict": "introduced", "sentence": "",
    }  # fmt: skip
    return Source(node=node, **{**fields, **changes})


@pytest.mark.parametrize(
    "wrong",
    [
        _source("blocks.1.mlp"),
        _source("blocks.2.mlp.proj"),
        _source("blocks.2.mlp", direction="backward"),
        _source("blocks.2.mlp", role="input"),
        _source("blocks.2.mlp", step=1),
    ],
)
def test_the_scorer_takes_nothing_but_the_expected_place(wrong):
    place = Place("mlp", "forward", ("output",))
    assert scorer.is_expected(_source("blocks.2.mlp"), ("blocks.2.mlp",), place)
    assert not scorer.is_expected(wrong, ("blocks.2.mlp",), place)


def test_results_are_written_with_every_miss(tmp_path):
    found = scorer.Outcome("fault", "wrong-eps", "llama", 1, "sketch", passed=True, verdict="introduced", judged=1.0)
    missed = replace(found, passed=False, found="model.norm forward/output 0 step 0", position=2)
    data, page = report.write([found, missed], tmp_path, how="Two cases.")
    assert len(json.loads(data.read_text())["outcomes"]) == 2
    assert "| fault | sketch | 1 | 2 | 50.0% |" in page.read_text()
    assert "model.norm forward/output 0 step 0" in page.read_text()


def test_the_quick_sample_holds_each_kind_once():
    faults, clean = run.quick_cases()
    assert sorted(case.fault.kind for case in faults) == sorted(fault.kind for fault in FAULTS)
    assert sorted(pair.clean.kind for pair in clean) == sorted(kind.kind for kind in CLEAN if not kind.slow)
    assert len(list(clean_cases(1, architectures=list(ARCHITECTURES), modes=["sketch"]))) >= 30


@pytest.mark.long
def test_the_full_bench_passes(tmp_path):
    assert run.main(["--seeds", "5", "--out", str(tmp_path)]) == 0
