"""Where the elements of a part of a tensor stand in the whole one, for what is keyed by an element's index.

A part is a number of runs of one length: its elements in row-major order, each run contiguous in the row-major order of
the whole tensor (``core.placement.Layout.runs``). A whole tensor, and any contiguous slice, is one run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Index of the first element of each run in the whole tensor, and the length of every run, in elements.
Runs = tuple[Sequence[int] | NDArray[np.int64], int]
Words = NDArray[np.uint64]


def real_runs(runs: Runs, count: int, pair: int = 1) -> tuple[NDArray[np.int64], int]:
    """Gives the runs of ``count`` elements in units of real elements, of which each element is ``pair``.

    Raises:
        ValueError: The runs do not hold that many elements.
    """
    starts, length = np.ascontiguousarray(runs[0], np.int64).reshape(-1), int(runs[1])
    if starts.size * length != count:
        raise ValueError(f"{starts.size} runs of {length} elements are not the {count} elements of the tensor")
    return starts * pair, length * pair


def indices_in_blocks(starts: NDArray[np.int64], length: int, block: int) -> Iterator[Words]:
    """Gives the index of each element in the whole tensor, at most ``block`` of them at a time."""
    if length >= block:
        for start in starts.tolist():
            for first in range(start, start + length, block):
                yield np.arange(first, min(first + block, start + length), dtype=np.int64).astype(np.uint64)
        return
    within = np.arange(length, dtype=np.int64)
    step = block // max(1, length)
    for i in range(0, starts.size, step):
        yield (starts[i : i + step, None] + within).reshape(-1).astype(np.uint64)


def pieces(flat: NDArray[Any], starts: NDArray[np.int64], length: int) -> Iterator[tuple[NDArray[Any], int]]:
    """Cuts a flat part into its runs, each with its first index."""
    for number, start in enumerate(starts.tolist()):
        yield flat[number * length : (number + 1) * length], start
