"""What parameters, classes and lists of experts say of themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import msprobe
from msprobe.adapters.pytorch.nodes import WatchedModule
from msprobe.adapters.pytorch.parallel.class_rules import ClassRules, placed_by
from msprobe.adapters.pytorch.parallel.declarations import by_attributes
from msprobe.adapters.pytorch.parallel.experts import local_experts
from msprobe.adapters.pytorch.parallel.mesh import Mesh
from msprobe.adapters.pytorch.parallel.pieces import at_coordinate
from msprobe.adapters.pytorch.parallel.spreads import of_layout, scaled, to_layout
from msprobe.core.errors import RecordingError
from msprobe.core.placement import Layout
from msprobe.core.sites import Direction, Role

MESH = Mesh.of_grid({"tp": 2}, rank=1)


RULES = """
from msprobe.core.merging.rules import LayoutRule

class Mine:
    name = "mine"
    rules = (
        LayoutRule.of("Column*", parameters={"weight": {"tp": "shard(0)"}}, outputs={"tp": "shard(-1)"}),
        LayoutRule.of("*", inputs={"tp": "partial(sum)"}),
    )
"""


def _told(spread: Any, *axes: str) -> Any:
    return to_layout(spread, axes)


def _spread(layout: Layout) -> Any:
    return of_layout(layout)


def _parameter(*shape, **attributes):
    parameter = nn.Parameter(torch.zeros(shape))
    for name, value in attributes.items():
        setattr(parameter, name, value)
    return parameter


def test_attributes_of_megatron_say_how_a_parameter_is_cut():
    spread = by_attributes(_parameter(4, 3, tensor_model_parallel=True, partition_dim=0, partition_stride=1), MESH)
    assert _told(spread, "tp").spans == (((4, 4),), ((0, 3),))
    fused = by_attributes(_parameter(4, 3, tensor_model_parallel=True, partition_dim=0, partition_stride=2), MESH)
    assert _told(fused, "tp").spans == (((2, 2), (6, 2)), ((0, 3),))


@pytest.mark.parametrize("attributes", [{}, {"tensor_model_parallel": False, "partition_dim": 0}, {"partition_dim": 0}])
def test_a_parameter_that_does_not_say_it_is_not_cut(attributes):
    assert by_attributes(_parameter(4, 3, **attributes), MESH) is None
    whole = {"tensor_model_parallel": True, "partition_dim": -1}  # as Megatron marks what is not cut
    assert by_attributes(_parameter(4, 3, **whole), MESH) is None


def test_the_first_rule_for_a_class_speaks(tmp_path, monkeypatch):
    (tmp_path / "rules_of_mine.py").write_text(RULES)
    monkeypatch.syspath_prepend(tmp_path)
    rules = ClassRules(["rules_of_mine:Mine"])
    found = rules.placements("ColumnParallelLinear", Direction.FORWARD, Role.OUTPUT, "0")
    spread = placed_by(found, None, (2, 3, 4), MESH, ("tp",))
    assert _told(spread, "tp").spans[2] == ((4, 4),)
    assert rules.placements("ColumnParallelLinear", Direction.FORWARD, Role.INPUT, "0") == ()
    partial: Any = placed_by(rules.placements("Other", Direction.FORWARD, Role.INPUT, "0"), None, (2,), MESH, ("tp",))
    assert partial.partial == (("tp", "sum"),)


@pytest.mark.parametrize("target", ["no_such_module:Rules", "json:Rules", "json"])
def test_rules_that_are_not_there_are_refused_before_anything_runs(tmp_path, target):
    with pytest.raises(RecordingError, match=r"layouts '.*'.*module:attribute"):
        msprobe.record(nn.Linear(1, 1), tmp_path / "run", layouts=target)


@pytest.mark.parametrize("attribute", [{"expert_offset": 4}, {"local_expert_indices": [4, 5]}])
@pytest.mark.parametrize("on_list", [True, False])
def test_local_experts_get_their_numbers_in_the_whole_model(attribute, on_list):
    layer: Any = nn.Module()
    layer.experts = nn.ModuleList([nn.Linear(1, 1), nn.Linear(1, 1)])
    for name, value in attribute.items():
        setattr(layer.experts if on_list else layer, name, value)
    pairs: Any = [
        (WatchedModule(path, i, i, frozenset()), module)
        for i, (path, module) in enumerate([("moe", layer), ("moe.experts", layer.experts)])
    ]
    found = [(expert.path, expert.global_path) for expert in local_experts(pairs)]
    assert found == [("moe.experts.0", "moe.experts.4"), ("moe.experts.1", "moe.experts.5")]


def test_a_list_of_modules_without_numbers_is_no_list_of_experts():
    layers = nn.ModuleList([nn.Linear(1, 1)])
    assert list(local_experts([(WatchedModule("layers", 0, 0, frozenset()), layers)])) == []


def test_a_site_with_longer_samples_is_cut_in_the_same_way():
    spread = _spread(Layout.whole((2, 8)).zigzag("cp", 1, coordinate=0, size=2))
    longer: Any = _told(scaled(spread, (5, 8)), "cp")
    assert (longer.global_shape, longer.spans[1]) == ((5, 16), ((0, 4), (12, 4)))
    assert scaled(_spread(Layout.whole((5,)).shard("tp", 0, coordinate=0, parts=2)), (4,)).unknown == {"tp"}


def test_what_another_rank_holds_is_known_of_regular_cuts_only():
    zigzag = _spread(Layout.whole((8,)).zigzag("cp", 0, coordinate=0, size=2))
    other: Any = at_coordinate(zigzag, "cp", 0, 1, 2)
    assert other.dims[0][0].spans == ((2, 4),)
    uneven = _spread(Layout.whole((8,)).shard("tp", 0, coordinate=0, parts=[5, 3]))
    assert at_coordinate(uneven, "tp", 0, 1, 2) is None
