"""A reader finds replicas that no longer hold the same, and ranks unlike their peers."""

import numpy as np
import pytest

from msprobe.core.alerts.replicas import replica_alerts
from msprobe.core.run.reader import open_run
from msprobe.core.sites import Direction, NodeKind, Role

RANKS, STEPS = 8, 6


@pytest.fixture
def record(tmp_path, start_recorder):
    """Records ranks with a parameter, an expert of their own and an output; ``change(rank, step, name)`` scales."""

    def make(change=lambda rank, step, name: 1.0, ranks=range(RANKS)):
        for rank in ranks:
            recorder = start_recorder(tmp_path / "run", rank=rank, what="statistics")
            draw = np.random.default_rng(rank)
            for step in range(STEPS):
                for name, role, direction, value in (
                    ("layer", Role.OUTPUT, Direction.FORWARD, draw.normal(size=50)),
                    ("layer", Role.PARAMETER, Direction.UPDATE, np.full(50, 1.0 + step)),
                    ("experts.0", Role.PARAMETER, Direction.UPDATE, draw.normal(size=50)),
                ):
                    node = recorder.node(name, NodeKind.MODULE, "Linear", "")
                    site = recorder.site(node, direction, role, role.value, 0)
                    recorder.observe(site, value * change(rank, step, f"{name} {role.value}"))
                recorder.end_step()
            recorder.close()
        return open_run(tmp_path / "run")

    return make


def _found(run, since=0):
    return [(e.details["rule"], e.details["node"], e.step, e.message) for e in replica_alerts(run, since)[0]]


def test_equal_replicas_and_experts_of_equal_names_are_none(record):
    run = record()
    assert _found(run) == []
    assert replica_alerts(run)[1] == STEPS


def test_a_replica_that_leaves_its_peers_is_named_with_its_rank_and_first_step(record):
    found = _found(
        record(lambda rank, step, name: 1.001 if (rank, name) == (5, "layer parameter") and step >= 3 else 1)
    )
    assert [(rule, node, step) for rule, node, step, _ in found] == [("replica", "layer", 3)]
    assert "rank 5 of 8" in found[0][3]


def test_an_output_unlike_those_of_the_other_ranks(record):
    found = _found(record(lambda rank, step, name: 100.0 if (rank, step, name) == (2, 4, "layer output") else 1))
    assert [(node, step) for _, node, step, _ in found] == [("layer", 4)]
    assert "rank 2 of 8" in found[0][3]


def test_only_new_steps_are_told_and_the_last_agreement_is_remembered(record):
    run = record(lambda rank, step, name: 1.001 if (rank, name) == (5, "layer parameter") and step >= 3 else 1)
    assert len(_found(run, 3)) == 1
    assert _found(run, 4) == []
    assert replica_alerts(run, STEPS) == ([], STEPS)


def test_one_rank_has_no_peers(record):
    assert _found(record(ranks=[0])) == []
