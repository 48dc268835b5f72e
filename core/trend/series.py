"""Series along one axis, the other two fixed, with the band of what is normal there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msprobe.core.errors import TrendError
from msprobe.core.robust import THRESHOLD, normal_of
from msprobe.core.trend.slices import AXES, Query, cut

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from msprobe.core.trend.index import TrendIndex

_MAGNITUDES = ("norm", "rms", "std", "mean_abs", "largest")


@dataclass(frozen=True, slots=True)
class Series:
    """``values`` (NaN where there is none) and ``states`` at ``positions`` along an axis.

    ``low`` and ``high`` bound what is normal: of all entries together; NaN where there are too few.
    """

    axis: str
    positions: NDArray[np.int64]
    values: NDArray[np.float64]
    states: NDArray[np.uint8]
    low: float
    high: float


def series(
    index: TrendIndex,
    axis: str,
    statistic: str = "norm",
    *,
    step: int | None = None,
    rank: int | None = None,
    site: int | None = None,
) -> Series:
    """Gives a statistic along ``axis``; of the other two axes one is fixed and the other fixed or pooled (None).

    Raises:
        TrendError: Nothing is fixed, the axis itself is, or what is fixed is not in the run.
    """
    fixed = {name: at for name, at in (("step", step), ("rank", rank), ("site", site)) if at is not None}
    others = [name for name in AXES if name != axis]
    if axis not in AXES or axis in fixed or not fixed:
        raise TrendError(
            f"a series runs along one of {', '.join(AXES)} and fixes one or two others; this fixes {fixed}"
        )
    one = next(name for name in others if name in fixed)
    third = next(name for name in others if name != one)
    limits = {"steps": (step, step)} if one == "step" else {f"{one}s": [fixed[one]]}
    picture = cut(index, Query(axis, one, statistic, fixed=fixed.get(third), **limits))
    values, states = picture.values[0], picture.states[0]
    low, high = normal_of(values, magnitudes=statistic in _MAGNITUDES).band(THRESHOLD)
    return Series(axis, picture.x.values, values, states, float(low), float(high))
