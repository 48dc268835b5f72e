"""Where a rank stands on the parallel mesh."""

from __future__ import annotations

import pytest
from torch import nn

from msprobe.adapters.pytorch.parallel.mesh import Mesh, find_mesh, mesh_axes
from msprobe.core.errors import ConfigError, RecordingError


def test_ranks_count_up_along_the_last_axis_first():
    mesh = Mesh.of_grid({"pp": 2, "dp": 1, "tp": 3}, rank=4)
    assert mesh.places == {"pp": (1, 2), "dp": (0, 1), "tp": (1, 3)}
    assert mesh.groups == {"pp": (1, 4), "dp": (4,), "tp": (3, 4, 5)}
    assert mesh.axes == ("pp", "tp")


def test_a_group_of_ranks_is_known_by_the_axis_that_it_spans():
    mesh = Mesh.of_grid({"pp": 2, "tp": 2}, rank=3)
    assert [mesh.axes_of(group) for group in ([2, 3], [3, 1], [0, 1, 2, 3], [0, 3])] == [
        ("tp",),
        ("pp",),
        ("pp", "tp"),
        (),
    ]


def test_the_user_names_the_mesh(monkeypatch):
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("WORLD_SIZE", "8")
    assert find_mesh([nn.Linear(1, 1)], (("pipeline", 2), ("tensor", 4))).places == {"pp": (1, 2), "tp": (1, 4)}
    monkeypatch.setenv("MSPROBE_MESH", "dp=4, tp=2")
    assert find_mesh([nn.Linear(1, 1)]).places == {"dp": (2, 4), "tp": (1, 2)}


def test_a_mesh_of_another_size_than_the_program_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "8")
    with pytest.raises(RecordingError, match="mesh pp=2 x tp=2 has 4 ranks, the program has 8"):
        find_mesh([], (("pp", 2), ("tp", 2)))
    monkeypatch.setenv("MSPROBE_MESH", "tp:8")
    with pytest.raises(ConfigError, match=r"'tp:8'.*tp=4"):
        find_mesh([])


def test_one_process_has_no_mesh():
    assert find_mesh([nn.Linear(1, 1)]).places == {}


class _Unnamed:
    mesh_dim_names = None
    ndim = 2


def test_axes_without_names_get_the_usual_ones():
    assert mesh_axes(_Unnamed()) == ("dp", "tp")
    assert mesh_axes(_Unnamed(), shards_data=True) == ("dp", "fsdp")
