"""What an adapter feeds the recorder is what the reader gives back."""

import subprocess
import sys
import threading

import numpy as np
import pytest

from msprobe.core import recorder as recording
from msprobe.core.graph import EdgeSource
from msprobe.core.records import HAS, Status
from msprobe.core.run.reader import open_run
from msprobe.core.sites import Direction, NodeKind, Role

EVIL = np.array([666.0, 1.0])


def place(recorder, path="layer", role=Role.OUTPUT, class_name="Linear"):
    """Gives a site of a module."""
    node = recorder.node(path, NodeKind.MODULE, class_name, "")
    return recorder.site(node, Direction.FORWARD, role, "0", 0)


def finish(recorder, path):
    recorder.end_step()
    recorder.close()
    return open_run(path).rank(0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run"


def test_records_hold_what_the_reducer_measured(path, start_recorder):
    recorder = start_recorder(path)
    values = np.array([[1.0, np.nan], [-np.inf, -0.0]])
    recorder.observe(place(recorder), values)

    records = finish(recorder, path).records

    assert {name: records[name].tolist() for name in ("min", "max", "mean", "nan", "neg_inf", "zero")} == {
        "min": [0], "max": [1], "mean": [0.5], "nan": [1], "neg_inf": [1], "zero": [1],
    }  # fmt: skip
    assert records["sketch"].tolist() == [[1, 2, 3, 4, 5, 6, 7, 8]]
    assert records["has"].tolist() == [HAS["statistics"] | HAS["sketch"]]


def test_reducer_is_asked_once_a_step(path, start_recorder):
    recorder = start_recorder(path)
    for _ in range(3):
        for layer in range(20):
            recorder.observe(place(recorder, f"layers.{layer}"), np.ones(2))
        recorder.end_step()

    assert recorder._reducer.num_collected == 3


def test_nodes_sites_forms_stacks_and_edges_are_written_once(path, start_recorder):
    recorder = start_recorder(path)
    for _ in range(3):
        node = recorder.node("a", NodeKind.MODULE, "A", None)
        sites = [recorder.site(node, Direction.FORWARD, Role.OUTPUT, str(i), 0, ("f.py:1",)) for i in range(2)]
        recorder.observe(sites[0], np.ones(3))
        recorder.edge(sites[0], sites[1], EdgeSource.TRACED)
        recorder.end_step()

    rank = finish(recorder, path)

    assert (len(rank.nodes), len(rank.sites), len(rank.forms), len(rank.stacks)) == (1, 2, 1, 1)
    assert rank.edges.tolist() == [[0, 1]]


def test_shared_content_is_measured_once(path, start_recorder):
    recorder = start_recorder(path, what="statistics,tensors")
    values = np.array([1.0, 2.0])
    first = recorder.observe(place(recorder, "a"), values)
    second = recorder.observe(place(recorder, "b"), values, share=first)
    recorder.observe(place(recorder, "c"), values, share=second)
    assert recorder._reducer.num_measured == 1

    rank = finish(recorder, path)

    assert rank.records["norm"].tolist() == [np.sqrt(5)] * 3
    assert rank.records["tensor"].tolist() == [0, 0, 0]
    assert rank.tensor(2).tolist() == [1, 2]


@pytest.mark.parametrize("steps_between", [1, 2])
def test_sharing_with_an_earlier_step_still_gives_the_numbers(path, start_recorder, steps_between):
    recorder = start_recorder(path)
    site, values = place(recorder), np.array([3.0, 4.0])
    first = recorder.observe(site, values)
    for _ in range(steps_between):
        recorder.end_step()
        recorder.observe(site, values, share=first)

    assert finish(recorder, path).records["norm"].tolist() == [5] * (steps_between + 1)


def test_reshaped_content_shares_numbers_under_its_own_form(path, start_recorder):
    recorder = start_recorder(path, what="statistics,tensors,rows")
    values = np.array([[3.0, 4.0]])
    first = recorder.observe(place(recorder, "a"), values, what=frozenset({"statistics", "tensors"}))
    recorder.observe(
        place(recorder, "b"), values[0], what=frozenset({"statistics", "tensors"}), share=first, reshaped=True
    )
    assert recorder._reducer.num_measured == 1

    rank = finish(recorder, path)

    assert rank.records["norm"].tolist() == [5, 5]
    assert [rank.tensor(row).shape for row in (0, 1)] == [(1, 2), (2,)]


def test_sharing_does_not_take_less_than_is_asked(path, start_recorder):
    recorder = start_recorder(path, what="statistics,checksums")
    values = np.array([1.0, 2.0])
    first = recorder.observe(place(recorder, "a"), values, what=frozenset({"statistics"}))
    recorder.observe(place(recorder, "b"), values, what=frozenset({"statistics", "checksums"}), share=first)

    records = finish(recorder, path).records

    assert records["has"].tolist() == [HAS["statistics"], HAS["statistics"] | HAS["checksums"]]
    assert records["checksum"].tolist() == [0, np.array([1.0]).view(np.uint64)[0]]


def test_what_was_not_asked_is_absent_not_zero(path, start_recorder):
    recorder = start_recorder(path, what="statistics,sketch", what_for={"small": "sketch"})
    recorder.observe(place(recorder, "small"), np.zeros(2))
    recorder.observe(place(recorder, "large"), np.zeros(2))

    records = finish(recorder, path).records

    assert records["zero"].tolist() == [-1, 2]
    np.testing.assert_array_equal(records["norm"], [np.nan, 0])


@pytest.mark.parametrize(
    ("tensor", "status", "expected"),
    [
        (None, None, Status.NO_VALUES),
        ("text", None, Status.UNSUPPORTED),
        (np.ones(2), Status.UNINITIALISED, Status.UNINITIALISED),
    ],
)
def test_values_that_must_not_be_read_are_not(path, start_recorder, tensor, status, expected):
    recorder = start_recorder(path)
    recorder.observe(place(recorder), tensor, status=status)

    records = finish(recorder, path).records

    assert records["status"].tolist() == [expected]
    assert records["has"].tolist() == [0]
    assert np.isnan(records["norm"]).all()


def test_failing_site_is_given_up_and_reported_once(path, start_recorder):
    recorder = start_recorder(path)
    bad, good = place(recorder, "bad"), place(recorder, "good")
    assert [recorder.observe(bad, EVIL), recorder.observe(bad, np.ones(2)), recorder.observe(good, np.ones(2))] == [
        0,
        -1,
        1,
    ]
    recorder.end_step()
    recorder.observe(bad, EVIL)

    rank = finish(recorder, path)

    assert rank.records["status"].tolist() == [Status.FAILED, Status.MEASURED]
    assert [(e.kind, e.node, e.count) for e in rank.events] == [("error", "bad", 1)]
    assert "number of the beast" in rank.events[0].message


def test_lost_numbers_of_a_step_are_told(path, start_recorder):
    recorder = start_recorder(path)
    site = place(recorder)
    recorder.observe(site, np.ones(2))
    recorder._reducer.slots = None  # the device fails
    recorder.end_step()
    recorder._reducer.slots = []
    recorder.observe(site, np.ones(2))

    rank = finish(recorder, path)

    assert rank.records["status"].tolist() == [Status.FAILED, Status.MEASURED]
    assert rank.records["has"].tolist() == [0, 3]
    assert "numbers of 1 records were lost" in rank.events[0].message


def test_steps_and_micro_steps_are_counted_and_can_be_given(path, start_recorder):
    recorder = start_recorder(path, start_step=10)
    site = place(recorder)
    recorder.observe(site, np.ones(2))
    recorder.begin_micro_step()
    recorder.observe(site, np.ones(2))
    recorder.observe(site, np.ones(2), micro_step=0)
    recorder.end_step()
    recorder.observe(site, np.ones(2))
    recorder.observe(site, np.ones(2), step=10, micro_step=1)

    records = finish(recorder, path).records

    assert records["step"].tolist() == [10, 10, 10, 11, 10]
    assert records["micro_step"].tolist() == [0, 1, 0, 0, 1]
    assert records["seq"].tolist() == [0, 1, 2, 3, 4]


def test_recording_imports_no_reader_of_tables():
    heavy = "{'duckdb', 'pyarrow', 'pydantic', 'pandas', 'safetensors', 'torch'}"
    code = f"import sys, msprobe.core.recorder, msprobe.core.run.writer; print({heavy} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"


def test_schedule_says_which_steps_and_ranks_record(path, start_recorder):
    recorder = start_recorder(path, steps="2-3", every=2, ranks="0")
    recording_at = []
    for _ in range(5):
        recording_at.append(recorder.recording)
        recorder.end_step()

    assert recording_at == [False, False, True, False, False]
    assert not start_recorder(path, rank=1, ranks="0").recording


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, ["", "model.mlp", "model.mlp/aten.mm.default"]),
        ({"targets": ["*.mlp"]}, ["model.mlp"]),
        ({"targets": ["aten.mm*"]}, ["model.mlp/aten.mm.default"]),
        ({"targets": ["model.*"], "exclude": ["MLP"]}, ["model.mlp/aten.mm.default"]),
        ({"exclude": ["*"]}, []),
    ],
)
def test_targets_and_exclude_choose_nodes_by_path_and_class(path, start_recorder, options, wanted):
    recorder = start_recorder(path, **options)
    nodes = {
        "": recorder.node("", NodeKind.MODULE, "Net", None),
        "model.mlp": recorder.node("model.mlp", NodeKind.MODULE, "MLP", ""),
        "model.mlp/aten.mm.default": recorder.node(
            "model.mlp/aten.mm.default", NodeKind.OP, "aten.mm.default", "model.mlp"
        ),
    }

    assert [name for name, node in nodes.items() if recorder.wants(node)] == wanted


def test_first_what_for_that_fits_wins(path, start_recorder):
    recorder = start_recorder(path, what_for=[("Linear", "tensors"), ("*", "rows")])
    nodes = [recorder.node(name, NodeKind.MODULE, name, "") for name in ("Linear", "Norm")]

    assert [recorder.wants(node) for node in nodes] == [{"tensors"}, {"rows"}]


def test_unwanted_node_records_nothing(path, start_recorder):
    recorder = start_recorder(path, exclude=["layer"])

    assert recorder.observe(place(recorder), np.ones(2)) == -1


def test_tensor_budget_is_kept_and_told(path, start_recorder):
    recorder = start_recorder(path, what="statistics,tensors", tensor_budget=100)
    for i in range(5):
        recorder.observe(place(recorder, f"layers.{i}"), np.full(5, float(i)))

    rank = finish(recorder, path)

    assert rank.records["tensor"].tolist() == [0, 1, -1, -1, -1]
    assert (rank.records["has"] & HAS["tensors"]).tolist() == [16, 16, 0, 0, 0]
    assert sum(e.count for e in rank.events if e.kind == "drop") == 3
    assert rank.tensor(1).tolist() == [1] * 5


def test_sharing_goes_on_when_the_tensor_budget_is_used_up(path, start_recorder):
    recorder = start_recorder(path, what="statistics,tensors", tensor_budget=10)
    values = np.array([3.0, 4.0])
    first = recorder.observe(place(recorder, "a"), values)
    recorder.observe(place(recorder, "b"), values, share=first)

    assert recorder._reducer.num_measured == 1
    assert finish(recorder, path).records["norm"].tolist() == [5, 5]


def test_row_statistics_come_back(path, start_recorder):
    recorder = start_recorder(path, what="rows")
    recorder.observe(place(recorder), np.array([[3.0, 4.0], [0.0, 1.0]]))

    assert finish(recorder, path).row_statistics(0)["norm"].tolist() == [5, 1]


def test_facts_are_kept_when_they_change(path, start_recorder):
    recorder = start_recorder(path)
    node = recorder.node("norm", NodeKind.MODULE, "Norm", "")
    for step, eps in enumerate((1e-5, 1e-5, 1e-6, float("nan"), float("nan"))):
        recorder.fact(node, "scalar", "eps", eps)
        recorder.fact(None, "batch", "shape", [1, step // 2])
        recorder.fact(None, "flag", "on", step == 1 or 0)
        recorder.end_step()

    facts = finish(recorder, path).facts

    assert [f.step for f in facts if f.name == "eps"] == [0, 2, 3]
    assert [f.step for f in facts if f.name == "shape"] == [0, 2, 4]
    assert [(f.step, f.value) for f in facts if f.name == "on"] == [(0, 0), (1, True), (2, 0)]


def test_equal_events_are_counted(path, start_recorder):
    recorder = start_recorder(path)
    for _ in range(100):
        recorder.event("gap", "compiled", "layer")
        recorder.end_step()
    recorder.event("gap", "another", "layer")

    events = finish(recorder, path).events

    assert sum(e.count for e in events if e.message == "compiled") == 100
    assert len(events) < 12


def test_long_step_is_written_in_parts(path, start_recorder, monkeypatch):
    monkeypatch.setattr(recording, "FLUSH_RECORDS", 10)
    recorder = start_recorder(path)
    site, values = place(recorder), np.array([3.0, 4.0])
    first = recorder.observe(site, values)
    for _ in range(14):
        recorder.observe(site, values, share=first)
    assert recorder._writer.flush(10)
    part = open_run(path).rank(0)
    assert len(part.records["norm"]) == 10
    assert part.complete_steps == ()

    rank = finish(recorder, path)

    assert rank.records["norm"].tolist() == [5] * 15
    assert rank.records["seq"].tolist() == list(range(15))
    assert rank.complete_steps == (0,)


def test_numbers_are_shared_over_many_parts_of_a_step(path, start_recorder, monkeypatch):
    monkeypatch.setattr(recording, "FLUSH_RECORDS", 3)
    recorder = start_recorder(path)
    sites = [place(recorder, f"layers.{i}") for i in range(20)]
    seqs = [recorder.observe(site, np.full(2, float(i))) for i, site in enumerate(sites)]
    for site, seq in zip(sites, seqs, strict=True):
        recorder.observe(site, np.zeros(2), share=seq)

    assert finish(recorder, path).records["max"].tolist() == [*range(20), *range(20)]
    assert recorder._reducer.num_measured == 20


def test_copies_of_tensors_do_not_pile_up_in_a_step(path, start_recorder):
    recorder = start_recorder(path, what="tensors", queue_bytes=4000)
    for i in range(40):
        recorder.observe(place(recorder, f"layers.{i}"), np.full(100, float(i)))
        assert recorder._copied_bytes <= 1800

    rank = finish(recorder, path)

    assert [rank.tensor(i)[0] for i in range(40)] == list(range(40))


def test_step_without_records_writes_nothing(path, start_recorder):
    recorder = start_recorder(path)
    for _ in range(5):
        recorder.end_step()
    recorder.close()

    assert open_run(path).rank(0).num_records == 0
    assert (path / "ranks" / "00000" / "commits-0001").read_text() == ""


def test_threads_may_observe_at_once(path, start_recorder):
    recorder = start_recorder(path)

    def work(name):
        for i in range(200):
            recorder.observe(place(recorder, f"{name}.{i % 50}"), np.array([float(name), i]))

    threads = [threading.Thread(target=work, args=(str(n),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    rank = finish(recorder, path)
    table = rank.table()

    assert len(rank.nodes) == 200
    assert table["seq"].tolist() == list(range(800))
    names = [float(node.split(".")[0]) for node in table["node"]]
    assert all((table["min"] == names) | (table["max"] == names))
