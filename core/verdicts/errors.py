"""How far the two sides of each pair are apart, from the best evidence that was recorded.

In this order: saved tensors (exact), checksums (equal bits), sketches (an estimate of the L2 norm of the difference),
statistics (a lower bound of it: two tensors whose norms, means or extremes differ are at least that far apart, but
equal statistics cannot rule out a permutation).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.dtypes import FORMATS
from msprobe.core.measures import PairMeasures
from msprobe.core.records import Status
from msprobe.core.sketches import estimate_error
from msprobe.core.verdicts.contents import ReadVectors, judge_by_content
from msprobe.core.verdicts.table import PairTable, Side, usable
from msprobe.core.verdicts.tokens import TokenAlignment, align_tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

TENSOR, SKETCH, STATISTICS, CHECKSUM, EMPTY = "tensor", "sketch", "statistics", "checksum", "empty"
#: Both sides hold the lowest number of their own format in the same number of places, and nothing else differs.
LIMITS = "limits"

#: Statistics are sums in fp64; taken over parts and merged they differ by so much of the norm from those of the whole.
_STATISTICS_ROUNDING = 1e-14


@dataclass
class Errors:
    """What each pair's error is, one entry per pair.

    ``difference`` is the L2 norm of candidate minus reference over the finite elements (NaN: unknown), ``kind`` what it
    was computed from; ``equal`` tells that the bits are proved equal, ``identical`` that nothing recorded differs,
    ``nonfinite`` that NaN or Inf stand in other places or numbers on the two sides; ``reason`` says why the error is
    unknown.
    """

    difference: NDArray[np.float64]
    kind: NDArray[np.object_]
    equal: NDArray[np.bool_]
    identical: NDArray[np.bool_]
    nonfinite: NDArray[np.bool_]
    reason: NDArray[np.object_]
    #: The pairs that were compared token by token.
    tokens: TokenAlignment


#: Measures the saved tensors of a row; None: one is missing.
MeasureTensors = Callable[[int], PairMeasures | None]
#: Shows progress over rows.
Bar = Callable[[Iterable[int]], Iterable[int]]


def measure_errors(
    table: PairTable, measure_tensors: MeasureTensors, bar: Bar, read_vectors: ReadVectors = lambda _: None
) -> Errors:
    """Measures every matched pair."""
    c, r = table.candidate, table.reference
    count = len(table)
    errors = Errors(
        difference=np.full(count, np.nan),
        kind=np.full(count, "", dtype=object),
        equal=np.zeros(count, dtype=bool),
        identical=np.zeros(count, dtype=bool),
        nonfinite=np.zeros(count, dtype=bool),
        reason=np.full(count, "", dtype=object),
        tokens=TokenAlignment(np.zeros(count, dtype=bool)),
    )
    both = usable(c) & usable(r)
    _explain_unusable(table, errors)
    errors.tokens = align_tokens(table, both, errors)
    same_shape = (c.shape == r.shape) & ~errors.tokens.rows
    errors.reason[both & ~same_shape & ~errors.tokens.rows] = "the shapes differ and no rule says how they correspond"
    comparable = both & same_shape
    empty = comparable & (c.elements == 0)
    _settle(errors, empty, 0.0, EMPTY)
    errors.equal |= empty
    open_ = comparable & ~empty
    _by_statistics(c, r, open_, errors)
    _by_sketch(c, r, open_, errors)
    _by_checksum(c, r, open_, errors)
    judge_by_content(table, open_, errors, read_vectors)
    _by_format_limits(c, r, open_, errors)
    _by_tensors(table, open_ & ~errors.equal & (errors.kind != LIMITS), errors, measure_tensors, bar)
    unknown = open_ & np.isnan(errors.difference) & ~errors.nonfinite
    errors.reason[unknown] = "neither side's statistics nor tensors allow an error to be computed"
    return errors


def _explain_unusable(table: PairTable, errors: Errors) -> None:
    for name, side in (("candidate", table.candidate), ("reference", table.reference)):
        for status in Status:
            if status != Status.MEASURED:
                hit = table.matched & (side.status == status)
                errors.reason[hit] = f"the {name} holds no statistics here ({status.name.lower().replace('_', ' ')})"
        for row, text in side.reasons.items():
            errors.reason[row] = f"the {name}: {text}" if table.matched[row] else ""


def _settle(errors: Errors, rows: NDArray[np.bool_], difference: float, kind: str) -> None:
    errors.difference[rows] = difference
    errors.kind[rows] = kind
    errors.identical[rows] = True


def _by_statistics(c: Side, r: Side, open_: NDArray[np.bool_], errors: Errors) -> None:
    x, y = c.statistics, r.statistics
    recorded = open_ & ~np.isnan(x["nan"]) & ~np.isnan(y["nan"])
    for name in ("nan", "pos_inf", "neg_inf"):
        errors.nonfinite |= recorded & (x[name] != y[name])
    finite = np.minimum(
        *(s.elements - sum(s.statistics[name] for name in ("nan", "pos_inf", "neg_inf")) for s in (c, r))
    )
    with np.errstate(invalid="ignore", over="ignore"):
        bounds = [np.abs(x["norm"] - y["norm"]), np.abs(x["mean"] - y["mean"]) * np.sqrt(finite)]
        bounds += [np.abs(x[name] - y[name]) for name in ("min", "max")]
    lower = np.fmax.reduce(bounds)
    lower[lower <= _STATISTICS_ROUNDING * np.fmax(x["norm"], y["norm"])] = 0.0
    none_finite = recorded & (finite == 0)
    lower[none_finite] = 0.0
    rows = recorded & ~np.isnan(lower)
    errors.difference[rows] = lower[rows]
    errors.kind[rows] = STATISTICS
    same = np.logical_and.reduce([(x[name] == y[name]) | (np.isnan(x[name]) & np.isnan(y[name])) for name in x])
    errors.identical |= rows & same


def _by_sketch(c: Side, r: Side, open_: NDArray[np.bool_], errors: Errors) -> None:
    if c.sketch is None or r.sketch is None:
        return
    estimate = estimate_error(c.sketch, r.sketch)
    rows = open_ & ~np.isnan(estimate)
    # The statistics' lower bound is certain, the sketch an estimate: the larger of both.
    errors.difference[rows] = np.fmax(estimate[rows], errors.difference[rows])
    errors.kind[rows] = SKETCH
    errors.identical[rows] &= estimate[rows] == 0


def _by_checksum(c: Side, r: Side, open_: NDArray[np.bool_], errors: Errors) -> None:
    held = open_ & c.has_checksum & r.has_checksum & (c.dtype == r.dtype)
    equal = held & (c.checksum == r.checksum)
    _settle(errors, equal, 0.0, CHECKSUM)
    errors.equal |= equal
    errors.nonfinite &= ~equal
    errors.identical &= ~(held & ~equal)


def _by_format_limits(c: Side, r: Side, open_: NDArray[np.bool_], errors: Errors) -> None:
    """Takes masks made of the lowest number of two different formats for the same: fp16 has no -3e38."""
    x, y = c.statistics, r.statistics
    lowest = (c.dtype != r.dtype) & (x["min"] == -_largest(c)) & (y["min"] == -_largest(r))
    same = (x["max"] == y["max"]) & (x["zero"] == y["zero"]) & (x["max"] == 0)
    _settle(errors, open_ & lowest & same, 0.0, LIMITS)


def _largest(side: Side) -> NDArray[np.float64]:
    """Gives the largest number of each row's format."""
    names = {name: FORMATS[name].largest if name in FORMATS else math.nan for name in set(side.dtype.tolist())}
    return np.array([names[name] for name in side.dtype.tolist()], dtype=np.float64)


def _by_tensors(table: PairTable, open_: NDArray[np.bool_], errors: Errors, measure: MeasureTensors, bar: Bar) -> None:
    c, r = table.candidate, table.reference
    rows = np.flatnonzero(open_ & (c.tensor >= 0) & (r.tensor >= 0))
    for row in bar(rows.tolist()):
        measured = measure(row)
        if measured is None:
            continue
        errors.difference[row] = measured.l2_difference
        errors.kind[row] = TENSOR
        errors.equal[row] = measured.equal and c.dtype[row] == r.dtype[row]
        errors.identical[row] = measured.l2_difference == 0 and not measured.nonfinite_differs
        errors.nonfinite[row] = measured.nonfinite_differs
        if np.isnan(table.norm[row]):  # of a sum over micro-steps no statistics are known
            table.norm[row] = measured.l2_reference


def relative(errors: Errors, table: PairTable) -> NDArray[np.float64]:
    """Gives the L2 error relative to the reference's norm; Inf against a zero reference or other non-finite values."""
    norm = table.norm
    with np.errstate(invalid="ignore", divide="ignore"):
        error = errors.difference / norm
    error[errors.difference == 0] = 0.0
    error[errors.nonfinite] = np.inf
    return error
