"""Prove parameters equal that were joined from several, which have no positional checksum in common.

Equal content sums say that both sides hold the same elements; equal row and column sums, in order, that each row and
each column does. A permutation that keeps all of them moves nothing, short of elements that are equal anyway.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from msprobe.core.sites import Role

if TYPE_CHECKING:
    from msprobe.core.verdicts.errors import Errors
    from msprobe.core.verdicts.table import PairTable

Vectors = tuple[NDArray[np.uint64], NDArray[np.uint64]]
#: Gives row and column sums of both sides of a row; None where one has none.
ReadVectors = Callable[[int], "tuple[Vectors, Vectors] | None"]

CHECKSUM, ORDER = "checksum", "order"


def judge_by_content(table: PairTable, open_: NDArray[np.bool_], errors: Errors, read: ReadVectors) -> None:
    """Settles what content sums of elements, rows and columns settle."""
    c, r = table.candidate, table.reference
    held = open_ & c.has_content_sum & r.has_content_sum & ~(c.has_checksum & r.has_checksum) & (c.dtype == r.dtype)
    errors.identical &= ~(held & (c.content_sum != r.content_sum))
    same = held & (c.content_sum == r.content_sum) & table.is_role(Role.PARAMETER, Role.BUFFER)
    for row in np.flatnonzero(same).tolist():
        vectors = read(row)
        if vectors is None:
            continue
        moved = [x != y for x, y in zip(*vectors, strict=True)]
        if not any(which.any() for which in moved):
            errors.difference[row], errors.kind[row] = 0.0, CHECKSUM
            errors.equal[row] = errors.identical[row] = True
            errors.nonfinite[row] = False
        else:
            _judge_order(table, row, max(float(which.mean()) for which in moved), errors)


def _judge_order(table: PairTable, row: int, share: float, errors: Errors) -> None:
    """Estimates the error of a tensor whose rows or columns stand in another order: that of independent ones.

    Where a share s of the rows is replaced by others of the same distribution, the difference has a squared norm of
    2 s m2, with m2 the sum of squared deviations.
    """
    m2 = float(table.reference.statistics["m2"][row])
    estimate = float(np.sqrt(2.0 * share * m2))
    if np.isnan(estimate):
        errors.reason[row] = "both sides hold the same elements, in another order"
        return
    errors.difference[row], errors.kind[row] = estimate, ORDER
    errors.identical[row] = False
