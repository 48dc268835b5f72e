"""Sorts rows by integer keys; where the keys nearly fill their range, by placing instead of comparing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Placing needs memory for the whole range of keys: up to this many times the rows.
_MOST_SLOTS_A_ROW = 6


def order_by(*keys: NDArray[np.integer]) -> NDArray[np.int64]:
    """Gives the stable order of rows by the first key, then the second, ...

    >>> order_by(np.array([1, 0, 1]), np.array([0, 5, -2])).tolist()
    [1, 2, 0]
    """
    count = len(keys[0])
    if not count:
        return np.zeros(0, np.int64)
    combined, width = np.zeros(count, np.int64), 1
    for key in keys:
        low, high = int(key.min()), int(key.max())
        width *= high - low + 1
        if width >= 2**62:
            order: NDArray[np.int64] = np.lexsort(keys[::-1]).astype(np.int64)
            return order
        combined *= high - low + 1
        combined += key.astype(np.int64) - low
    if width <= _MOST_SLOTS_A_ROW * count + 1024:
        slots = np.full(width, -1, np.int64)
        slots[combined] = np.arange(count)
        placed = slots[slots >= 0]
        if len(placed) == count:  # else two rows have one key
            return placed
    return np.argsort(combined, kind="stable").astype(np.int64)


def group_starts(*keys: NDArray[np.integer]) -> NDArray[np.int64]:
    """Gives where, in rows sorted by the keys, each group of equal rows starts."""
    if not len(keys[0]):
        return np.zeros(0, np.int64)
    new = np.zeros(len(keys[0]), bool)
    new[0] = True
    for key in keys:
        new[1:] |= key[1:] != key[:-1]
    return np.flatnonzero(new)
