"""Measures one pass over a tensor against a plain read of its bytes: ``python -m benchmarks.kernels``.

Each row is one size and format; each column the least processor time of many calls on one thread, and in parentheses
how many plain reads it took: NumPy's largest element over the same bytes as int64. Tensors of 32 MiB and more take
turns with copies, so that they come from memory; smaller ones come from cache. ``--pure`` measures NumPy in place of
the C kernels, ``--instructions avx2`` those of another instruction set. The last table is the comparison of two
tensors, by the bytes of both.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core import kernels
from msprobe.core.checksums import checksums_of
from msprobe.core.kernels import arrays
from msprobe.core.kernels.library import current
from msprobe.core.measures import MeasuredPair, pair_measures
from msprobe.core.protocols import PairComparator
from msprobe.core.sketches import sketch
from msprobe.core.statistics import measure
from msprobe.plugins import plugin_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIZES = (2**12, 2**16, 2**20, 2**24)
DTYPES = ("float32", "float16", "float64", "int64")
#: Bytes from which a tensor is read from memory, by turns out of so many bytes.
LARGE = 2**25
ROUND = 2**29
#: Column -> what is asked of the one pass.
ASKED = {
    "statistics": arrays.STATISTICS,
    "+ sketch": arrays.STATISTICS | arrays.SKETCH,
    "checksums": arrays.CHECKSUMS,
    "all": arrays.STATISTICS | arrays.SKETCH | arrays.CHECKSUMS,
}


def best_seconds(call: Callable[[Any], object], tensors: Sequence[Any], budget: float) -> float:
    """Gives the least processor time of as many calls as fit into the time, at least five for each tensor."""
    best, end = float("inf"), time.perf_counter() + budget
    for calls, tensor in enumerate(itertools.cycle(tensors)):
        if calls >= 5 * len(tensors) and time.perf_counter() > end:
            return best
        started = time.thread_time()
        call(tensor)
        best = min(best, time.thread_time() - started)
    return best


def copies_of(values: NDArray[Any]) -> list[NDArray[Any]]:
    """Gives copies of a large tensor to take turns, so that none is in cache when it is read."""
    return [values] if values.nbytes < LARGE else [values.copy() for _ in range(ROUND // values.nbytes)]


def by_numpy(values: NDArray[Any], what: int) -> None:
    """Does what one pass of C does, by the definitions."""
    if what & arrays.STATISTICS:
        measure(values)
    if what & arrays.SKETCH:
        sketch(values)
    if what & arrays.CHECKSUMS:
        checksums_of(values)


def rows(budget: float) -> Iterator[tuple[str, ...]]:
    """Measures all sizes and formats."""
    one_pass = arrays.measure_array if kernels.available() else by_numpy
    for dtype in DTYPES:
        for size in SIZES:
            tensors = copies_of((np.random.default_rng(0).standard_normal(size) * 100).astype(dtype))
            read = best_seconds(lambda v: v.view(np.int64).max(), tensors, budget)
            cells = [dtype, f"{size:,}", f"{read * 1e6:,.1f}"]
            for what in ASKED.values():
                seconds = best_seconds(lambda v, w=what: one_pass(v, w), tensors, budget)
                ratio = f"{seconds / read:.1f}" if read > 0 else "?"  # the clock may be too coarse for a small read
            cells.append(f"{seconds * 1e6:,.1f} ({ratio})")
            yield tuple(cells)


def pair_rows(budget: float) -> Iterator[tuple[str, ...]]:
    """Measures the comparison of two tensors: what a verdict needs, and all built-in comparators."""
    table = plugin_table()
    names = [plugin.name for plugin in table.of_kind("comparators", usable=True)]
    every = [c for c in (table.get("comparators", name) for name in names) if isinstance(c, PairComparator)]

    def compare(pair: Any) -> None:
        measured = MeasuredPair(pair[0], pair[1])
        for comparator in every:
            comparator.compare_pair(measured)

    for size in SIZES:
        pairs = copies_of(np.random.default_rng(0).standard_normal((2, size)).astype(np.float32))
        cells = [f"{size:,}"]
        for call in (lambda pair: pair_measures(pair[0], pair[1]), compare):
            seconds = best_seconds(call, pairs, budget)
            cells.append(f"{seconds * 1e6:,.1f} ({8 * size / seconds / 1e9:.1f})")
        yield tuple(cells)


def print_table(header: tuple[str, ...], lines: Iterator[tuple[str, ...]]) -> None:
    """Prints Markdown, a line as soon as it is measured."""
    print("| " + " | ".join(header) + " |\n|" + "---|" * len(header), flush=True)
    for line in lines:
        print("| " + " | ".join(line) + " |", flush=True)


def main() -> None:
    """Measures and prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pure", action="store_true", help="measure NumPy in place of the C kernels")
    parser.add_argument("--instructions", choices=("baseline", "avx2", "avx512"), help="use those of the kernels")
    parser.add_argument("--seconds", type=float, default=0.5, help="time for each number")
    options = parser.parse_args()
    library = current()
    if options.instructions and (library is None or not library.choose(options.instructions.encode())):
        parser.error(f"no {options.instructions} kernels here: {kernels.status()}")
    if options.pure:
        with kernels.without():
            measure_all(options.seconds)
    else:
        measure_all(options.seconds)


def measure_all(seconds: float) -> None:
    """Prints both tables for the path that is on."""
    print(f"kernels: {kernels.status()}; microseconds of processor time, best of many, one thread\n")
    print_table(("format", "elements", "plain read", *ASKED), rows(seconds))
    print()
    print_table(("pair of float32, elements", "for the verdict (GB/s)", "all comparators (GB/s)"), pair_rows(seconds))


if __name__ == "__main__":
    main()
