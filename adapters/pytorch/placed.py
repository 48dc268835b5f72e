"""A local tensor together with how it lies in the whole one, for tensors that do not say so themselves.

Observe one in the place of a tensor: its record carries the layout, and its sketch and checksums are keyed by the
index in the whole tensor, so that they add over ranks without gathering anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from msprobe.core.placement import Layout

if TYPE_CHECKING:
    import torch

    from msprobe.core.runs import Runs


@dataclass(frozen=True, slots=True)
class Placed:
    """``tensor`` holds plain local values, in the order of ``layout``.

    ``followed`` tells whether its version counts every change: that inside of a distributed tensor does not.
    """

    tensor: torch.Tensor
    layout: Layout
    followed: bool = True


def plain_of(tensor: torch.Tensor | Placed) -> torch.Tensor:
    """Gives the tensor itself."""
    return tensor.tensor if isinstance(tensor, Placed) else tensor


def of_each(part: torch.Tensor | Placed, tensor: torch.Tensor) -> torch.Tensor | Placed:
    """Gives a tensor that was derived from a part: each rank has its own, which do not combine."""
    if not isinstance(part, Placed):
        return tensor
    own = Layout.whole(tuple(tensor.shape))
    for placement in part.layout.placements:
        own = own.replicate(placement.axis) if placement.kind == "replicate" else own.unknown(placement.axis)
    return Placed(tensor, own)


@lru_cache(maxsize=65536)
def text_of(layout: Layout, *, is_global: bool) -> str:
    """Gives the text of a layout for a ``Form``, which says whether elements are keyed by their global index."""
    if layout.is_whole and layout.scale == 1.0:
        return "" if not layout.placements else layout.keyed_globally().to_json()
    return (layout.keyed_globally() if is_global else layout).to_json()


@lru_cache(maxsize=65536)
def runs_of(layout: Layout) -> Runs:
    """Gives the first global indices of the runs that a local tensor consists of, and the length of each."""
    return layout.runs()
