"""Compare recorded checksums: whether two tensors hold the same bits in the same places."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


class ChecksumEqual:
    """1 for equal positional checksums, 0 for others, NaN where a side has none.

    Tensors of different number formats have different checksums, even where their values are equal.
    """

    name = "checksum_equal"
    better = "higher"
    formula = "1 if checksum(c) = checksum(r), else 0"
    source = "core.checksums: a single changed element always shows, any other change but with probability 2^-64."

    def compare_statistics(
        self, candidate: Mapping[str, NDArray[Any]], reference: Mapping[str, NDArray[Any]]
    ) -> NDArray[np.float64]:
        """Gives 1, 0 or NaN for each pair."""
        equal = np.asarray(candidate["checksum"]) == np.asarray(reference["checksum"])
        known = np.asarray(candidate["has_checksum"], bool) & np.asarray(reference["has_checksum"], bool)
        return np.where(known, equal.astype(np.float64), np.nan)
