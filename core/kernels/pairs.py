"""Calls the kernel that compares two tensors in one pass."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from msprobe.core.kernels.arrays import LONG, form_of
from msprobe.core.kernels.library import current

Array = NDArray[Any]

#: How many doubles and integers source/pair.c gives.
_NUM_FLOATS: Final = 9
_NUM_COUNTS: Final = 7
#: Exponent of the smallest normal number of fp64.
SMALLEST_EXPONENT: Final = -1022


@dataclass(frozen=True, slots=True)
class PairSums:
    """What one pass over a pair gives; all but counts are over the elements that are finite on both sides.

    ``max_distance`` and ``sum_distance`` times 2^(p-1) are in ulps of a format of p bits. ``within`` counts, for either
    tolerance, elements whose difference is at most that times the reference's magnitude; ``differing`` those that are
    unequal.
    """

    max_difference: float
    max_relative: float
    max_distance: float
    sum_relative: float
    sum_distance: float
    product: float
    squares_candidate: float
    squares_reference: float
    squares_difference: float
    finite: int
    alike: int
    unlike: int
    differing: int
    within: tuple[int, int]
    signs_differ: bool


class _Results(threading.local):
    def __init__(self) -> None:
        self.floats, self.counts = np.empty(_NUM_FLOATS), np.empty(_NUM_COUNTS, np.int64)
        self.addresses: tuple[int, int] = (self.floats.ctypes.data, self.counts.ctypes.data)


_results = _Results()


def measure_pair(
    candidate: Array,
    reference: Array,
    *,
    tolerances: tuple[float, float] = (0.0, 0.0),
    smallest_exponent: int = SMALLEST_EXPONENT,
) -> PairSums | None:
    """Compares two arrays of one shape; None where the kernels cannot.

    That is without a library, for 64-bit integers, for a complex and a real side, for arrays with gaps, and for
    magnitudes whose squares overflow float64 or lose bits in it.
    """
    library = current()
    forms = (form_of(candidate), form_of(reference))
    if library is None or forms[0] is None or forms[1] is None or forms[0][1] != forms[1][1]:
        return None
    count = candidate.size * forms[0][1]
    pair = library.long_pair if count > LONG else library.pair
    addresses = [side.__array_interface__["data"][0] for side in (candidate, reference)]
    at = _results.addresses
    if pair(addresses[0], forms[0][0], addresses[1], forms[1][0], count, *tolerances, smallest_exponent, *at):
        return None
    *counts, strict, loose, signs_differ = _results.counts.tolist()
    fields: list[Any] = [*_results.floats.tolist(), *counts, (strict, loose), bool(signs_differ)]
    return PairSums(*fields)
