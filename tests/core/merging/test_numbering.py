"""Local numbers are recognised by their start at 0 on every rank, and by nothing else."""

from __future__ import annotations

from msprobe.core.merging.numbering import global_numbers
from msprobe.core.sites import Node, NodeKind


def nodes(*paths):
    return [Node(path, NodeKind.MODULE, "Layer", path.rpartition(".")[0]) for path in paths]


def pipeline(rank, size=2):
    return {"pp": (rank, size)}


def renamed(ranks, meshes, **more):
    return [found.renamed for found in global_numbers(ranks, meshes, **more)]


def test_a_later_stage_goes_on():
    ranks = [nodes("layers.0"), nodes("layers.0", "layers.1")]
    assert renamed(ranks, [pipeline(0), pipeline(1)]) == [{}, {"layers.0": "layers.1", "layers.1": "layers.2"}]


def test_numbers_that_are_global_already_stay():
    ranks = [nodes("layers.0"), nodes("layers.1", "layers.2")]
    assert renamed(ranks, [pipeline(0), pipeline(1)]) == [{}, {}]


def test_lists_inside_of_layers_stay():
    ranks = [nodes("layers.0", "layers.0.mlp.0"), nodes("layers.0", "layers.0.mlp.0")]
    assert renamed(ranks, [pipeline(0), pipeline(1)])[1] == {"layers.0": "layers.1"}


def test_experts_of_later_stages_go_on_in_both_numbers():
    meshes = [{"pp": (stage, 2), "ep": (rank, 2)} for stage in range(2) for rank in range(2)]
    ranks = [nodes("layers.0", "layers.0.experts.0", "layers.0.experts.1")] * 4
    assert renamed(ranks, meshes)[3] == {
        "layers.0": "layers.1",
        "layers.0.experts.0": "layers.1.experts.2",
        "layers.0.experts.1": "layers.1.experts.3",
    }


def test_one_stage_has_nothing_to_go_on_from():
    assert renamed([nodes("layers.0")], [{}]) == [{}]


def test_chunks_of_virtual_stages_go_on_in_the_order_of_stages():
    ranks = [nodes("m0", "m0.layers.0", "m1", "m1.layers.0"), nodes("m0", "m0.layers.0", "m0.layers.1", "m1.layers.0")]
    first, second = global_numbers(ranks, [pipeline(0), pipeline(1)], virtual=2)
    assert first.stages == {"m0": 0, "m1": 2}
    assert second.stages == {"m0": 1, "m1": 3}
    assert first.renamed == {"m0": "", "m1": "", "m1.layers.0": "layers.3"}
    assert second.renamed == {
        "m0": "", "m1": "", "m0.layers.0": "layers.1", "m0.layers.1": "layers.2", "m1.layers.0": "layers.4",
    }  # fmt: skip
