"""Number groups of equal rows: what a database calls GROUP BY, for integer columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def group_numbers(*columns: NDArray[np.integer]) -> NDArray[np.int64]:
    """Gives each row a number, equal for rows that are equal in all columns, dense from 0 in the columns' order.

    >>> group_numbers(np.array([5, 5, 7]), np.array([1, 2, 1])).tolist()
    [0, 1, 2]
    """
    numbers = np.zeros(len(columns[0]), dtype=np.int64)
    if not len(numbers):
        return numbers
    for column in columns:
        values = column.astype(np.int64)
        low = int(values.min())
        width = int(values.max()) - low + 1
        combined = numbers * width + (values - low) if width < 2**31 else numbers * len(values) + _dense(values)
        numbers = _dense(combined)
    return numbers


def _dense(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers the distinct values in order, by counting where they are few and by sorting where they are not."""
    low, high = int(values.min()), int(values.max())
    if high - low < 8 * len(values) + 1024:
        present = np.zeros(high - low + 1, dtype=bool)
        present[values - low] = True
        dense: NDArray[np.int64] = (np.cumsum(present) - 1)[values - low]
        return dense
    inverse: NDArray[np.int64] = np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return inverse
