"""How a recorded local tensor lies in the whole one: which part of it, over which axes of the parallel mesh.

A layout is a value. It starts as the whole tensor and is cut axis by axis, in the order in which the framework cuts:

>>> Layout.whole((8, 6)).shard("tp", 0, coordinate=1, parts=2).shard("fsdp", 0, coordinate=0, parts=2).spans
(((4, 2),), ((0, 6),))

``Form.layout`` holds its JSON text; the empty text is the whole tensor on every rank that the node has.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from msprobe.core.errors import LayoutError

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Axes of the mesh: tensor, pipeline, context, expert and data parallel; ``fsdp`` is the axis over which FSDP and ZeRO
#: cut parameters. Ranks along ``dp`` and ``fsdp`` work on different samples. Any other name is taken as it is.
AXES: Final = ("pp", "dp", "fsdp", "ep", "cp", "tp")
DATA_AXES: Final = ("dp", "fsdp")
KINDS: Final = ("replicate", "shard", "partial", "unknown")
#: How a layout came to be known: said by the framework, followed from such through the model, given by a rule for a
#: class, given by flags of the user, or taken from the shape of the other side's whole tensor.
KNOWN_BY: Final = ("declared", "propagated", "rule", "flags", "shape")

#: (start, length) of the pieces that are held along one dimension, in local order.
Intervals = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """What one axis of the mesh does to a tensor: ``kind`` is one of ``KINDS``.

    ``dim`` is the dimension that is cut (-1: none, or the flattened tensor); ``op`` is how partial values make the
    whole (``sum``, ``avg``, ``max``, ...).
    """

    axis: str
    kind: str
    dim: int = -1
    op: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise LayoutError(f"axis {self.axis!r}: no kind of placement is called {self.kind!r}; known: {KINDS}")


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a local tensor lies in the whole one of shape ``global_shape``.

    ``spans[d]`` are the pieces of dimension ``d`` that the local tensor holds, in its order. ``flat`` is a (start,
    length) slice of the row-major flattening of the whole tensor, or where ``spans`` is given too of the part that
    ``spans`` describes. At least one of both is given. ``placements`` names the axes of more than one rank.
    ``scale`` is the factor that a gradient carries here and the whole one does not (loss scale, 1 / micro-batches).
    ``index`` says what sketches and positional checksums of the local tensor are keyed by: the ``global`` index of
    each element, so that they add over parts, or its ``local`` one, so that they must not be added.
    A placement of kind ``unknown`` makes the part unknown along its axis: spans then describe the local tensor.

    Raises:
        LayoutError: The pieces do not fit the global shape, or a name is unknown.
    """

    global_shape: tuple[int, ...]
    spans: tuple[Intervals, ...] | None = None
    flat: tuple[int, int] | None = None
    placements: tuple[Placement, ...] = ()
    scale: float = 1.0
    known_by: str = "declared"
    index: str = "local"

    def __post_init__(self) -> None:
        if self.index not in ("local", "global"):
            raise LayoutError(f"elements are counted by their local or global index, not {self.index!r}")
        if self.known_by not in KNOWN_BY:
            raise LayoutError(f"a layout is known by one of {KNOWN_BY}, not by {self.known_by!r}")
        if not 0 < self.scale < math.inf:
            raise LayoutError(f"a scale is a positive number, not {self.scale}")
        if self.spans is None and self.flat is None:
            raise LayoutError("a layout needs spans or a flat slice")
        if self.spans is not None:
            _check_spans(self.global_shape, self.spans)
        if self.flat is not None:
            start, length = self.flat
            size = math.prod(self._part_shape)
            if start < 0 or length < 0 or start + length > size:
                raise LayoutError(f"the slice of {length} elements from {start} on leaves a tensor of {size} elements")

    @classmethod
    def whole(cls, shape: Sequence[int], *, scale: float = 1.0, known_by: str = "declared") -> Layout:
        """Starts from the whole tensor of a shape."""
        sizes = tuple(int(size) for size in shape)
        return cls(sizes, tuple(((0, size),) if size else () for size in sizes), scale=scale, known_by=known_by)

    @classmethod
    def placed(cls, shape: Sequence[int], placements: Sequence[Placement], mesh: Mapping[str, Sequence[int]]) -> Layout:
        """Cuts a whole tensor by placements in their order, each along one axis of ``mesh`` (coordinate and size)."""
        layout = cls.whole(shape)
        for placement in placements:
            coordinate, size = mesh[placement.axis]
            if placement.kind == "shard":
                layout = layout.shard(placement.axis, placement.dim, coordinate=coordinate, parts=size)
            else:
                layout = replace(layout, placements=(*layout.placements, placement))
        return layout

    def shard(
        self, axis: str, dim: int, *, coordinate: int, parts: int | Sequence[int], blocks: Sequence[int] = ()
    ) -> Layout:
        """Keeps one of several parts along a dimension.

        Args:
            axis: Axis of the mesh.
            dim: Dimension that is cut; negative ones count from the end.
            coordinate: Which part this rank keeps.
            parts: How many parts (of size ceil(n / parts), the last ones smaller or empty, as DTensor and
                ``torch.chunk`` cut), or the size of each.
            blocks: Sizes of tensors that lie one after the other along the dimension and are cut each by itself
                (fused query, key and value).
        """
        dim = self._dim(dim)
        held = sum(length for _, length in self._spans[dim])
        blocks = tuple(blocks) or (held,)
        if sum(blocks) != held:
            raise LayoutError(f"blocks {blocks} do not add up to the {held} entries of dimension {dim}")
        if not isinstance(parts, int) and len(blocks) > 1:
            raise LayoutError("blocks are cut into a number of parts, not into parts of given sizes")
        taken: list[tuple[int, int]] = []
        begin = 0
        for block in blocks:
            start, length = _part(block, parts, coordinate)
            taken += _cut(self._spans[dim], begin + start, length)
            begin += block
        return self._with(Placement(axis, "shard", dim), dim, taken)

    def zigzag(self, axis: str, dim: int, *, coordinate: int, size: int) -> Layout:
        """Keeps parts ``coordinate`` and ``2 size - 1 - coordinate`` of ``2 size``: context parallelism, causal."""
        dim = self._dim(dim)
        held = sum(length for _, length in self._spans[dim])
        if held % (2 * size):
            raise LayoutError(f"dimension {dim} of {held} entries does not split into {2 * size} equal parts")
        chunk = held // (2 * size)
        taken = [
            piece
            for part in (coordinate, 2 * size - 1 - coordinate)
            for piece in _cut(self._spans[dim], part * chunk, chunk)
        ]
        return self._with(Placement(axis, "shard", dim), dim, taken)

    def slice_flat(self, axis: str, start: int, length: int) -> Layout:
        """Keeps a slice of the row-major flattening of what is held so far, as FSDP1 and ZeRO cut."""
        if self.flat is not None:
            start += self.flat[0]
        placements = (*self.placements, Placement(axis, "shard"))
        return replace(self, flat=(start, length), placements=placements)

    def replicate(self, axis: str) -> Layout:
        """Says that every rank along the axis holds the same."""
        return replace(self, placements=(*self.placements, Placement(axis, "replicate")))

    def keyed_globally(self) -> Layout:
        """Says that sketches and checksums were keyed by the global index."""
        return replace(self, index="global")

    def partial(self, axis: str, op: str = "sum") -> Layout:
        """Says that the values along the axis have yet to be combined by ``op``."""
        return replace(self, placements=(*self.placements, Placement(axis, "partial", op=op)))

    def unknown(self, axis: str) -> Layout:
        """Says that nothing is known of the axis."""
        return replace(self, placements=(*self.placements, Placement(axis, "unknown")))

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the local tensor; a flat slice has one dimension."""
        return (self.flat[1],) if self.flat is not None else self._part_shape

    @property
    def is_whole(self) -> bool:
        """Whether the local tensor holds every element, in order, with its final value."""
        settled = all(placement.kind == "replicate" for placement in self.placements)
        return settled and self.shape == self.global_shape and self == replace(self, spans=_full(self.global_shape))

    @property
    def is_known(self) -> bool:
        """Whether it is known which part of the whole the local tensor is."""
        return all(placement.kind != "unknown" for placement in self.placements)

    def placement(self, axis: str) -> Placement | None:
        """Gives what the layout says of an axis; None when it says nothing."""
        return next((placement for placement in self.placements if placement.axis == axis), None)

    def runs(self) -> tuple[NDArray[np.int64], int]:
        """Gives the local elements, in row-major order, as runs that are contiguous in the global row-major index.

        Returns:
            The global index of each run's first element, int64 of shape (runs,), and the length of all runs.
        """
        if not math.prod(self.shape):
            return np.empty(0, np.int64), 1
        if self.spans is None:
            assert self.flat is not None
            return np.array([self.flat[0]], np.int64), self.flat[1]
        starts, length = _runs_of_spans(self.global_shape, self.spans)
        if self.flat is None:
            return starts, length
        return _sliced(starts, length, *self.flat)

    def to_json(self) -> str:
        """Writes the layout as the text of ``Form.layout``."""
        content: dict[str, Any] = {"global_shape": self.global_shape}
        content |= {name: value for name in ("spans", "flat") if (value := getattr(self, name)) is not None}
        content["placements"] = [(p.axis, p.kind, p.dim, p.op) for p in self.placements]
        if self.scale != 1.0:
            content["scale"] = self.scale
        content["known_by"] = self.known_by
        content["index"] = self.index
        return json.dumps(content, separators=(",", ":"))

    @property
    def _part_shape(self) -> tuple[int, ...]:
        if self.spans is None:
            return self.global_shape
        return tuple(sum(length for _, length in intervals) for intervals in self.spans)

    @property
    def _spans(self) -> tuple[Intervals, ...]:
        if self.flat is not None or self.spans is None:
            raise LayoutError("a flat slice has no dimensions to cut along; cut them first")
        return self.spans

    def _dim(self, dim: int) -> int:
        count = len(self.global_shape)
        if not -count <= dim < count:
            raise LayoutError(f"a tensor of shape {self.global_shape} has no dimension {dim}")
        return dim % count

    def _with(self, placement: Placement, dim: int, taken: Sequence[tuple[int, int]]) -> Layout:
        spans = list(self._spans)
        spans[dim] = _joined(taken)
        return replace(self, spans=tuple(spans), placements=(*self.placements, placement))


def read_layout(text: str) -> Layout | None:
    """Reads the text of ``Form.layout``; None for the empty text, which is the whole tensor.

    Raises:
        LayoutError: The text is no layout, or one that contradicts itself.
    """
    if not text:
        return None
    try:
        content = json.loads(text)
        spans, flat = content.get("spans"), content.get("flat")
        return Layout(
            global_shape=tuple(map(int, content["global_shape"])),
            spans=None if spans is None else tuple(tuple((int(a), int(b)) for a, b in dim) for dim in spans),
            flat=None if flat is None else (int(flat[0]), int(flat[1])),
            placements=tuple(Placement(str(a), str(k), int(d), str(o)) for a, k, d, o in content["placements"]),
            scale=float(content.get("scale", 1.0)),
            known_by=str(content.get("known_by", "declared")),
            index=str(content.get("index", "local")),
        )
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise LayoutError(f"not a layout: {text[:80]!r} ({type(error).__name__}: {error})") from error


def whole_shape(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """Gives the shape of the whole tensor that a form (its local shape and layout text) is a part of."""
    read = read_layout(layout)
    return shape if read is None else read.global_shape


def coordinates(mesh: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Gives a rank's coordinate on each axis of ``RankInfo.mesh``."""
    return {axis: int(place[0]) for axis, place in mesh.items()}


def sizes(mesh: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Gives the size of each axis of ``RankInfo.mesh``."""
    return {axis: int(place[1]) for axis, place in mesh.items()}


def _full(shape: tuple[int, ...]) -> tuple[Intervals, ...]:
    return tuple(((0, size),) if size else () for size in shape)


def _check_spans(shape: tuple[int, ...], spans: tuple[Intervals, ...]) -> None:
    if len(spans) != len(shape):
        raise LayoutError(f"{len(spans)} dimensions of spans for a whole of shape {shape}")
    for dim, (size, intervals) in enumerate(zip(shape, spans, strict=True)):
        if any(start < 0 or length < 0 or start + length > size for start, length in intervals):
            raise LayoutError(f"spans {intervals} of dimension {dim} leave its {size} entries")
        ordered = sorted(intervals)
        if any(start + length > after for (start, length), (after, _) in pairwise(ordered)):
            raise LayoutError(f"spans {intervals} of dimension {dim} overlap")


def _part(size: int, parts: int | Sequence[int], coordinate: int) -> tuple[int, int]:
    """Gives start and length of one part of ``size`` entries."""
    count = parts if isinstance(parts, int) else len(parts)
    if not 0 <= coordinate < count:
        raise LayoutError(f"there is no part {coordinate} of {count}")
    if isinstance(parts, int):
        chunk = -(-size // parts)
        start = min(coordinate * chunk, size)
        return start, min(chunk, size - start)
    if sum(parts) != size:
        raise LayoutError(f"parts of {tuple(parts)} entries do not add up to {size}")
    return sum(parts[:coordinate]), parts[coordinate]


def _cut(intervals: Intervals, start: int, length: int) -> list[tuple[int, int]]:
    """Gives the entries ``start`` to ``start + length`` of what intervals hold, as intervals."""
    taken: list[tuple[int, int]] = []
    position = 0
    for begin, size in intervals:
        first, last = max(start, position), min(start + length, position + size)
        if first < last:
            taken.append((begin + first - position, last - first))
        position += size
    return taken


def _joined(intervals: Sequence[tuple[int, int]]) -> Intervals:
    """Joins intervals that follow each other, and leaves out empty ones."""
    out: list[tuple[int, int]] = []
    for start, length in intervals:
        if out and sum(out[-1]) == start:
            out[-1] = (out[-1][0], out[-1][1] + length)
        elif length:
            out.append((start, length))
    return tuple(out)


def _runs_of_spans(shape: tuple[int, ...], spans: tuple[Intervals, ...]) -> tuple[NDArray[np.int64], int]:
    stride = 1
    starts, length = np.zeros(1, np.int64), 1
    for size, intervals in zip(reversed(shape), reversed(spans), strict=True):
        if len(starts) == 1 and length == stride:  # everything further inside is whole: the run goes on
            length = stride * math.gcd(*(piece for _, piece in intervals))
            step = length // stride
            heads = [np.arange(start, start + piece, step, dtype=np.int64) for start, piece in intervals]
            starts = np.concatenate(heads) * stride
        else:
            held = np.concatenate([np.arange(start, start + piece, dtype=np.int64) for start, piece in intervals])
            starts = (held[:, None] * stride + starts).reshape(-1)
        stride *= size
    return starts, length


def _sliced(starts: NDArray[np.int64], length: int, first: int, count: int) -> tuple[NDArray[np.int64], int]:
    """Gives the elements ``first`` to ``first + count`` of runs as runs again."""
    step = math.gcd(length, first, count)
    fine = (starts[:, None] + np.arange(0, length, step, dtype=np.int64)).reshape(-1)
    return fine[first // step : (first + count) // step], step
