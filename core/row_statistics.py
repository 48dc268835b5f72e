"""Statistics of each row of a tensor: of each token of an activation, along its last dimension.

They find the token that went wrong, and pair tokens of two runs that lay them out differently. The columns, one entry
for each row in row-major order of the leading dimensions:

norm, mean, max_abs   over the finite elements of the row; 0, NaN and NaN when there is none
nonfinite             count of NaN and infinities
projection_0, _1      projections 0 and 1 of ``core.sketches`` with the element's index in its row
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from msprobe.core.sketches import signs
from msprobe.core.statistics import real_elements

Array = NDArray[Any]

NUM_PROJECTIONS: Final = 2
ROW_COLUMNS: Final = ("norm", "mean", "max_abs", "nonfinite", "projection_0", "projection_1")

#: Elements worked on at a time.
BLOCK: Final = 65536


def measure_rows(values: Array) -> dict[str, Array]:
    """Measures each row of an array; a 0-dimensional one is one row of one element."""
    rows = rows_of(values)
    hidden = rows.shape[1]
    row_signs = signs(np.arange(hidden))[:, :NUM_PROJECTIONS]
    step = max(1, BLOCK // max(1, hidden))
    blocks = [_measure_block(rows[start : start + step], row_signs) for start in range(0, len(rows), step)]
    if not blocks:
        blocks = [_measure_block(rows, row_signs)]
    return {name: np.concatenate([block[name] for block in blocks]) for name in ROW_COLUMNS}


def rows_of(values: Array) -> Array:
    """Views an array as (rows, real elements of a row)."""
    real = real_elements(values)
    count = int(np.prod(values.shape[:-1]))
    return real.reshape(count, real.size // count if count else 0)


def _measure_block(rows: Array, row_signs: Array) -> dict[str, Array]:
    x = rows.astype(np.float64)
    finite = np.isfinite(x)
    counts = finite.sum(axis=1)
    x[~finite] = 0.0
    magnitude = np.abs(x)
    peak = magnitude.max(axis=1, initial=0.0)
    scale = np.where(peak > 0, peak, 1.0)
    scaled = x / scale[:, None]
    some = np.maximum(counts, 1)
    projections = (scaled @ row_signs) * scale[:, None]
    return {
        "norm": np.sqrt(np.einsum("rh,rh->r", scaled, scaled)) * scale,
        "mean": np.where(counts > 0, scaled.sum(axis=1) / some * scale, np.nan),
        "max_abs": np.where(counts > 0, peak, np.nan),
        "nonfinite": (rows.shape[1] - counts).astype(np.int64),
        "projection_0": projections[:, 0],
        "projection_1": projections[:, 1],
    }
