"""Parts of a tensor whose place in the whole one is known: their numbers add up to those of the whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from msprobe.adapters.pytorch.placed import Placed
from msprobe.adapters.pytorch.reductions import TorchReducer
from msprobe.core import sketches
from msprobe.core.placement import Layout, read_layout

ALL = frozenset({"statistics", "sketch", "checksums"})


def _cut(whole: torch.Tensor, layouts: list[Layout]) -> list[Placed]:
    flat, places = whole.reshape(-1), []
    for layout in layouts:
        starts, length = layout.runs()
        pieces = [flat[start : start + length] for start in starts.tolist()]
        part = torch.cat(pieces) if pieces else flat[:0]
        places.append(Placed(part.reshape(layout.shape), layout))
    return places


def _ways(shape: tuple[int, ...]) -> dict[str, list[Layout]]:
    whole = Layout.whole(shape)
    size = torch.Size(shape).numel()
    return {
        "rows": [whole.shard("fsdp", 0, coordinate=i, parts=4) for i in range(4)],
        "columns": [whole.shard("tp", 1, coordinate=i, parts=3) for i in range(3)],
        "both": [
            whole.shard("tp", 1, coordinate=i, parts=2).shard("fsdp", 0, coordinate=j, parts=2)
            for i in range(2)
            for j in range(2)
        ],
        "flat": [whole.slice_flat("fsdp", start, min(37, size - start)) for start in range(0, size, 37)],
        "zigzag": [whole.zigzag("cp", 1, coordinate=i, size=2) for i in range(2)],
        "more ranks than rows": [whole.shard("fsdp", 0, coordinate=i, parts=7) for i in range(7)],
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.float64], ids=str)
@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("way", list(_ways((5, 12))))
def test_sketches_and_checksums_of_parts_add_up_to_those_of_the_whole(way, where, dtype):
    whole = torch.randn(5, 12, dtype=dtype)
    reducer = TorchReducer(frozenset({"cpu"}) if where == "host" else frozenset())
    parts = _cut(whole, _ways((5, 12))[way])
    tensors: list[torch.Tensor | Placed] = [whole, *parts]
    slots = [reducer.measure(tensor, ALL) for tensor in tensors]
    layouts = [read_layout(reducer.describe(part).layout) for part in parts]
    numbers = reducer.collect()
    assert slots == list(range(len(slots)))
    assert numbers["zero"][0] == 0
    np.testing.assert_allclose(np.hypot.reduce(numbers["norm"][1:][~np.isnan(numbers["norm"][1:])]), numbers["norm"][0])
    assert all(layout is not None and layout.index == "global" for layout in layouts)
    for name in ("checksum", "content_sum"):
        assert numbers[name][1:].sum(dtype=np.uint64) == numbers[name][0]
    np.testing.assert_allclose(sketches.merge(numbers["sketch"][1:]), numbers["sketch"][0], rtol=1e-12, atol=1e-12)


def test_the_form_of_a_part_tells_its_layout_and_local_shape():
    layout = Layout.whole((5, 12)).shard("fsdp", 0, coordinate=1, parts=2)
    form = TorchReducer().describe(Placed(torch.ones(2, 12), layout))
    assert (form.shape, form.dtype, read_layout(form.layout)) == ((2, 12), "fp32", layout.keyed_globally())


def test_a_whole_tensor_of_one_rank_needs_no_layout():
    assert TorchReducer().describe(Placed(torch.ones(3), Layout.whole((3,)))).layout == ""
