"""Measures a pair of tensors, in one pass over both where there are C kernels, else block by block in little memory.

Both sides are compared element by element as float64, whatever formats they came in; complex numbers count as two real
elements. A difference of integers is taken exactly before it is rounded. Elements that are not finite take part in no
arithmetic: they are *alike* when both sides hold NaN, or both the same infinity, and *unlike* otherwise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from msprobe.core.kernels.pairs import SMALLEST_EXPONENT, PairSums, measure_pair
from msprobe.core.spacing import coarser_precision, format_of
from msprobe.core.statistics import flat_blocks, real_elements

Array = NDArray[Any]
Doubles = NDArray[np.float64]

#: Elements worked on at a time.
BLOCK: Final = 2**18
#: Squares of numbers between these bounds neither overflow in a sum nor lose bits.
SAFE: Final = (1e-140, 1e140)
#: Relative tolerances for which every pass over a pair counts the elements that agree.
TOLERANCES: Final = (1e-3, 5e-3)


@dataclass(frozen=True, slots=True)
class Block:
    """The elements of one block that are finite on both sides, and how many others there are.

    ``alike`` and ``unlike`` count elements that are not finite on at least one side.
    """

    candidate: Doubles
    reference: Doubles
    difference: Doubles
    alike: int
    unlike: int

    @property
    def size(self) -> int:
        """Counts all elements of the block."""
        return self.difference.size + self.alike + self.unlike


@dataclass(frozen=True, slots=True)
class PairMeasures:
    """What the verdict needs to know of a pair of tensors; all 0 and equal for empty ones.

    ``l2_difference``, ``l2_reference`` and ``max_abs`` are over the elements that are finite on both sides.
    ``equal`` compares values with the sign of zero, all NaN being one value. ``flips`` counts unequal elements.
    """

    l2_difference: float
    l2_reference: float
    max_abs: float
    equal: bool
    nonfinite_differs: bool
    flips: int
    #: Counts of elements: all, those finite on both sides, those of which only one is or that are unlike.
    elements: int
    finite: int
    unlike: int


class MeasuredPair:
    """A pair of tensors of one shape that is read once for all that ask for a measure of it.

    ``formats`` are the canonical names of the formats that the tensors were recorded in, which arrays cannot always
    tell (bf16 is read as fp32); by default those of the arrays.

    Raises:
        ValueError: The shapes differ.
    """

    def __init__(self, candidate: Array, reference: Array, formats: tuple[str, str] | None = None) -> None:
        _check_shapes(candidate, reference)
        self.candidate, self.reference = candidate, reference
        self.formats = formats or (format_of(candidate), format_of(reference))

    @functools.cached_property
    def sums(self) -> PairSums | None:
        """All sums of the pair, with ``TOLERANCES``; None where only ``blocks`` can tell."""
        coarser = coarser_precision(self.formats)
        smallest = SMALLEST_EXPONENT if coarser is None else coarser[1]
        return pair_sums(self.candidate, self.reference, smallest_exponent=smallest)

    @functools.cached_property
    def measures(self) -> PairMeasures:
        """What the verdict needs to know."""
        if self.sums is None:
            return _measures_by_blocks(self.candidate, self.reference)
        return _measures_of(self.sums)

    def blocks(self) -> Iterator[Block]:
        """Walks over the elements, where the sums are not enough."""
        return pair_blocks(self.candidate, self.reference)


class OfPair:
    """Compares tensors by measures that comparators share; see ``core.protocols.PairComparator``."""

    name: str
    better: str
    formula: str
    source: str

    def compare_pair(self, pair: MeasuredPair) -> float:
        """Gives the comparator's number for a pair."""
        raise NotImplementedError

    def compare(self, candidate: Array, reference: Array, formats: tuple[str, str] | None = None) -> float:
        """Gives the number of two arrays alone."""
        return self.compare_pair(MeasuredPair(candidate, reference, formats))


def pair_measures(candidate: Array, reference: Array) -> PairMeasures:
    """Measures a pair of tensors of one shape in one go."""
    return MeasuredPair(candidate, reference).measures


def pair_sums(
    candidate: Array,
    reference: Array,
    *,
    tolerances: tuple[float, float] = TOLERANCES,
    smallest_exponent: int = SMALLEST_EXPONENT,
) -> PairSums | None:
    """Lets the C kernel measure a pair; None where only ``pair_blocks`` can (``core.kernels.pairs``)."""
    _check_shapes(candidate, reference)
    sides = (np.ascontiguousarray(candidate), np.ascontiguousarray(reference))
    return measure_pair(*sides, tolerances=tolerances, smallest_exponent=smallest_exponent)


def _measures_of(sums: PairSums) -> PairMeasures:
    flips = sums.unlike + sums.differing
    return PairMeasures(
        l2_difference=math.sqrt(sums.squares_difference),
        l2_reference=math.sqrt(sums.squares_reference),
        max_abs=sums.max_difference,
        equal=not flips and not sums.signs_differ,
        nonfinite_differs=sums.unlike > 0,
        flips=flips,
        elements=sums.finite + sums.alike + sums.unlike,
        finite=sums.finite,
        unlike=sums.unlike,
    )


def _measures_by_blocks(candidate: Array, reference: Array) -> PairMeasures:
    l2_difference = l2_reference = max_abs = 0.0
    unlike = flips = elements = finite = 0
    same_bits = True
    for block in pair_blocks(candidate, reference):
        elements += block.size
        finite += block.difference.size
        unlike += block.unlike
        flips += block.unlike + int(np.count_nonzero(block.difference))
        l2_difference = math.hypot(l2_difference, root_of_squares(block.difference))
        l2_reference = math.hypot(l2_reference, root_of_squares(block.reference))
        max_abs = max(max_abs, float(np.abs(block.difference).max(initial=0.0)))
        same_bits = same_bits and np.array_equal(np.signbit(block.candidate), np.signbit(block.reference))
    return PairMeasures(
        l2_difference=l2_difference,
        l2_reference=l2_reference,
        max_abs=max_abs,
        equal=same_bits and not flips,
        nonfinite_differs=unlike > 0,
        flips=flips,
        elements=elements,
        finite=finite,
        unlike=unlike,
    )


def pair_blocks(candidate: Array, reference: Array) -> Iterator[Block]:
    """Cuts a pair of tensors of one shape into blocks."""
    _check_shapes(candidate, reference)
    if (candidate.dtype.kind == "c") != (reference.dtype.kind == "c"):
        candidate, reference = (side.astype(np.complex128) for side in (candidate, reference))
    sides = (flat_blocks(np.ascontiguousarray(real_elements(side)), BLOCK) for side in (candidate, reference))
    for x, y in zip(*sides, strict=True):
        with np.errstate(over="ignore", invalid="ignore"):
            block = _block(x, y)
        yield block


def _check_shapes(candidate: Array, reference: Array) -> None:
    if candidate.shape != reference.shape:
        raise ValueError(f"cannot compare tensors of shapes {candidate.shape} and {reference.shape}")


def relative_differences(block: Block) -> Doubles:
    """Gives |candidate - reference| / |reference|: 0 for two zeros, +Inf where only the reference is 0."""
    magnitude = np.abs(block.difference)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        relative: Doubles = magnitude / np.abs(block.reference)
    relative[magnitude == 0] = 0.0
    return relative


def root_of_squares(elements: Doubles) -> float:
    """Gives the L2 norm, without overflow or underflow on the way."""
    peak = float(np.abs(elements).max(initial=0.0))
    if peak == 0 or not math.isfinite(peak):
        return peak
    if SAFE[0] < peak < SAFE[1]:
        return math.sqrt(float(np.einsum("i,i", elements, elements)))
    scaled = elements / peak
    return math.sqrt(float(np.einsum("i,i", scaled, scaled))) * peak


def _block(x: Array, y: Array) -> Block:
    candidate, reference = x.astype(np.float64), y.astype(np.float64)
    if x.dtype.kind in "iu" and y.dtype.kind in "iu":
        return Block(candidate, reference, _integer_difference(x, y), 0, 0)
    finite = np.isfinite(candidate) & np.isfinite(reference)
    if finite.all():
        return Block(candidate, reference, candidate - reference, 0, 0)
    others = (candidate[~finite], reference[~finite])
    alike = int(np.count_nonzero((others[0] == others[1]) | (np.isnan(others[0]) & np.isnan(others[1]))))
    candidate, reference = candidate[finite], reference[finite]
    return Block(candidate, reference, candidate - reference, alike, others[0].size - alike)


def _integer_difference(x: Array, y: Array) -> Doubles:
    """Subtracts integers of any two widths; exact below 2^53, else rounded."""
    if max(x.dtype.itemsize, y.dtype.itemsize) < 8:
        return (x.astype(np.int64) - y.astype(np.int64)).astype(np.float64)
    if x.dtype.kind == y.dtype.kind:
        return _distance(x, y, x > y)
    # One side is unsigned: where the other is negative the difference may exceed 64 bits, and float64 holds it.
    high, low = x.astype(np.uint64), y.astype(np.uint64)
    return np.where((x < 0) | (y < 0), x.astype(np.float64) - y.astype(np.float64), _distance(high, low, high > low))


def _distance(x: Array, y: Array, larger: NDArray[np.bool_]) -> Doubles:
    """Subtracts modulo 2^64, the smaller from the larger."""
    high, low = x.astype(np.uint64), y.astype(np.uint64)
    magnitude = np.where(larger, high - low, low - high).astype(np.float64)
    return np.where(larger, magnitude, -magnitude)
