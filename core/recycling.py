"""Memory for copies of tensors, used again once they are written: fresh memory costs more than the copy itself."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

#: Bytes of a block that copies are laid into one after the other; a larger one has a block of its own.
BLOCK_BYTES = 16 * 2**20
#: Bytes of unused blocks that are kept.
MOST_UNUSED = 256 * 2**20
_ALIGNMENT = 64


class Recycler:
    """Gives arrays of bytes, whose memory comes back when the last array of a block has gone.

    One thread at a time may take; any thread may let go.
    """

    def __init__(self) -> None:
        self._unused: deque[Bytes] = deque()
        self._block: Bytes | None = None
        self._used = 0

    def take(self, nbytes: int) -> Bytes:
        """Gives an array of bytes that hold anything."""
        if self._block is None or self._used + nbytes > self._block.nbytes:
            self._block = None  # first, so that it comes back if nobody uses it
            self._block, self._used = self._lease(nbytes), 0
        start, self._used = self._used, -(-(self._used + nbytes) // _ALIGNMENT) * _ALIGNMENT
        return self._block[start : start + nbytes]

    def clear(self) -> None:
        """Lets go of all memory that is not in use."""
        self._block = None
        self._unused.clear()

    def _lease(self, nbytes: int) -> Bytes:
        for _ in range(len(self._unused)):
            block = self._unused.popleft()
            if block.nbytes >= nbytes:
                break
            self._unused.append(block)
        else:
            block = np.empty(max(nbytes, BLOCK_BYTES), np.uint8)
        leased: Bytes = np.asarray(_Lease(block, self._unused))
        return leased


class _Lease:
    """Owner of the memory of arrays: it puts the block back when the last of them has gone."""

    def __init__(self, block: Bytes, unused: deque[Bytes]) -> None:
        self._block, self._unused = block, unused
        self.__array_interface__: Any = block.__array_interface__

    def __del__(self) -> None:
        if sum(block.nbytes for block in list(self._unused)) + self._block.nbytes <= MOST_UNUSED:
            self._unused.append(self._block)
