"""Local numbers are recognised by their start at 0 on every rank, and by nothing else."""

from __future__ import annotations

from msprobe.core.merging.numbering import global_numbers
from msprobe.core.sites import Node, NodeKind


def nodes(*paths):
    return [Node(path, NodeKind.MODULE, "Layer", path.rpartition(".")[0]) for path in paths]


def pipeline(rank, size=2):
    return {"pp": (rank, size)}


def test_a_later_stage_goes_on():
    ranks = [nodes("layers.0"), nodes("layers.0", "layers.1")]
    assert global_numbers(ranks, [pipeline(0), pipeline(1)]) == [{}, {"layers.0": "layers.1", "layers.1": "layers.2"}]


def test_numbers_that_are_global_already_stay():
    ranks = [nodes("layers.0"), nodes("layers.1", "layers.2")]
    assert global_numbers(ranks, [pipeline(0), pipeline(1)]) == [{}, {}]


def test_lists_inside_of_layers_stay():
    ranks = [nodes("layers.0", "layers.0.mlp.0"), nodes("layers.0", "layers.0.mlp.0")]
    assert global_numbers(ranks, [pipeline(0), pipeline(1)])[1] == {"layers.0": "layers.1"}


def test_experts_of_later_stages_go_on_in_both_numbers():
    meshes = [{"pp": (stage, 2), "ep": (rank, 2)} for stage in range(2) for rank in range(2)]
    ranks = [nodes("layers.0", "layers.0.experts.0", "layers.0.experts.1")] * 4
    assert global_numbers(ranks, meshes)[3] == {
        "layers.0": "layers.1",
        "layers.0.experts.0": "layers.1.experts.2",
        "layers.0.experts.1": "layers.1.experts.3",
    }


def test_one_stage_has_nothing_to_go_on_from():
    assert global_numbers([nodes("layers.0")], [{}]) == [{}]
