"""Activations of data-parallel ranks as parts of those of the whole batch.

Each rank computes with its own samples, so what it computes is a part along the batch's dimension of what one process
would compute with all of them: the samples of rank 0 first, then those of rank 1 (``blocks``), or in turn, as
``DistributedSampler`` deals them (``interleaved``). Which tensors run along the batch is told from the sizes of the
model's inputs, a rule; all ranks are supposed to have as many samples.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msprobe.adapters.pytorch.dtensors import local_of
from msprobe.adapters.pytorch.placed import Placed
from msprobe.core.placement import Layout, Placement

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from msprobe.adapters.pytorch.holdings import DataParallel


class Samples:
    """The samples of one forward pass on this rank: how many, and how many rows one sample may have."""

    def __init__(self, group: DataParallel, order: str, shapes: Iterable[torch.Size] = ()) -> None:
        self._group = group
        self._axes = [place for place in group.places if place.size > 1]
        self._interleaved = order == "interleaved"
        self._layouts: dict[Any, Layout] = {}
        sizes = [tuple(shape) for shape in shapes if len(shape)]
        self.count = sizes[0][0] if sizes else 0
        #: How long one sample is, where the inputs tell.
        self._lengths = {shape[1] for shape in sizes if len(shape) > 1 and shape[0] == self.count}

    def activation(self, tensor: torch.Tensor | Placed) -> torch.Tensor | Placed:
        """Gives an activation as a part of that of the whole batch."""
        return self._part(tensor, 1.0)

    def gradient(self, tensor: torch.Tensor | Placed) -> torch.Tensor | Placed:
        """Gives the gradient of an activation: of this rank's loss, of which the whole loss is the mean over ranks."""
        return self._part(tensor, self._group.divisor)

    def _part(self, tensor: torch.Tensor | Placed, scale: float) -> torch.Tensor | Placed:
        if not self._axes or not self.count:
            return tensor
        part = local_of(tensor)
        plain, layout = (part.tensor, part.layout) if isinstance(part, Placed) else (part, None)
        followed = not isinstance(part, Placed) or part.followed
        key = (plain.shape if layout is None else layout, scale, plain.is_floating_point())
        found = self._layouts.get(key)
        if found is None:
            found = self._layouts[key] = self._layout(plain, layout or Layout.whole(plain.shape), scale)
        return Placed(plain, found, followed)

    def _layout(self, tensor: torch.Tensor, layout: Layout, scale: float) -> Layout:
        shape = layout.global_shape
        known_by = "rule" if layout.known_by == "declared" else layout.known_by
        layout = replace(layout, scale=layout.scale * scale, known_by=known_by)
        dim = self._dimension(shape)
        for place in self._axes:
            if layout.placement(place.axis) is not None:
                continue
            if not shape and tensor.is_floating_point():
                layout = layout.partial(place.axis, "avg")
            elif dim is None or layout.flat is not None or layout.spans is None:
                layout = layout.unknown(place.axis)
        if dim is not None and layout.flat is None and layout.spans is not None:
            layout = self._along_batch(layout, dim)
        return layout

    def _dimension(self, shape: tuple[int, ...]) -> int | None:
        """Gives the dimension that runs along the batch: the first, or the second after that of the sequence."""
        if shape and (shape[0] == self.count or shape[0] in {self.count * length for length in self._lengths}):
            return 0
        if len(shape) > 2 and shape[1] == self.count and shape[0] in self._lengths:
            return 1
        return None

    def _along_batch(self, layout: Layout, dim: int) -> Layout:
        """Widens the whole to all ranks, and says which of it this rank has."""
        spans = layout.spans
        assert spans is not None
        ranks, number = self._group.size, 0
        for place in self._axes:
            number = number * place.size + place.coordinate
        size = layout.global_shape[dim]
        rows = size // self.count
        if self._interleaved:
            if spans[dim] != ((0, size),):
                unknown = (Placement(place.axis, "unknown") for place in self._axes)
                return replace(layout, placements=(*layout.placements, *unknown))
            moved = tuple(((sample * ranks + number) * rows, rows) for sample in range(self.count))
        else:
            moved = tuple((start + number * size, length) for start, length in spans[dim])
        shape = (*layout.global_shape[:dim], size * ranks, *layout.global_shape[dim + 1 :])
        placements = (*(Placement(place.axis, "shard", dim) for place in self._axes), *layout.placements)
        return replace(
            layout, global_shape=shape, spans=(*spans[:dim], moved, *spans[dim + 1 :]), placements=placements
        )
