"""Robust scores: how far a value lies from its history or from its peers, in units that outliers do not move.

The one place where "normal" is defined: the alert rules, the scan and the trend page's band use it.

A score is ``(x - centre) / scale``, signed, so spikes and collapses both show. The centre is the median; the scale is
1.4826 times the median absolute deviation (MAD), which for Gaussian noise is the standard deviation (Hampel, JASA 69,
1974; Rousseeuw and Croux, JASA 88, 1993). Half of the history may be wild before either moves.

How false alarms are kept away, each with its reason:

* A short history estimates its own MAD badly: with 16 values, the threshold that 1 of 100,000 Gaussian values passes
  is 11.8, not 4.4. ``widening`` multiplies the scale by the measured factor, so that one threshold means the same rate
  at any length. Under ``LEAST_VALUES`` there is no score.
* Norms and other magnitudes vary by factors: ``magnitudes=True`` takes logarithms. A threshold is then about ratios.
* A quantity that hardly moves (the weights of a norm layer, a clipped gradient norm) has a MAD near zero, and every
  rounding would be a departure. So the scale never is less than ``RELATIVE_FLOOR`` of the centre's size.
* A history of nothing but zeros knows no scale. The score of a value that leaves it is NaN (not known), not infinite;
  leaving zero is a finding of its own kind.
* NaN, infinite and absent values in the history are left out, they do not blind it; a non-finite value has no score
  (NaN): non-finite is a finding of its own kind, too.
* Where 512 ranks times 300 sites are tested at each of 1,000 steps, even 1e-8 fires. Training noise is heavy-tailed.
  ``THRESHOLD`` is therefore far outside of any Gaussian thinking.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

#: MAD of Gaussian noise to its standard deviation: 1 / the 3/4 quantile of the normal distribution.
MAD_TO_DEVIATION = 1.482602218505602
#: Mean absolute deviation to standard deviation, sqrt(pi / 2): the scale where more than half of the values are equal.
MEAN_TO_DEVIATION = 1.2533141373155001
#: Least number of finite values that make a history. With fewer even ``widening`` says nothing.
LEAST_VALUES = 8
#: The scale is at least this share of the centre's size: a departure of less than a few percent is not looked for.
RELATIVE_FLOOR = 0.01
#: The same for logarithms of magnitudes: an absolute floor, 2 %.
LOG_FLOOR = 0.02
#: A value is unlike its history from this score on. With heavy tails (Student's t, 4 degrees of freedom) and a long
#: history about one value in 7,000 passes it, so rules ask for a second sign as well (a ratio, a neighbour, a repeat).
THRESHOLD = 12.0


@dataclass(frozen=True, slots=True)
class Normal:
    """What is normal along one axis; every array has the shape of the values without that axis.

    ``scale`` holds floors and widening; it is NaN where there are fewer than ``LEAST_VALUES`` finite values, and 0
    where all of them are zero. With ``magnitudes`` centre and scale are of logarithms.
    """

    centre: NDArray[np.float64]
    scale: NDArray[np.float64]
    count: NDArray[np.int64]
    magnitudes: bool

    def score(self, values: ArrayLike) -> NDArray[np.float64]:
        """Gives signed scores; NaN where the value is not finite or no scale is known.

        With magnitudes, a value of 0 after a history of other values has score -inf: it collapsed.
        """
        given = np.asarray(values, np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.log(np.abs(given)) if self.magnitudes else given
            score = (x - self.centre) / self.scale
        score = np.where(x == self.centre, np.where(np.isnan(self.scale), np.nan, 0.0), score)
        unknown = ~np.isfinite(given) | ~(self.scale > 0) & (x != self.centre)
        return np.where(unknown, np.nan, score)

    def band(self, threshold: float = THRESHOLD) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Gives the least and the largest normal value; NaN where no scale is known."""
        low, high = self.centre - threshold * self.scale, self.centre + threshold * self.scale
        return (np.exp(low), np.exp(high)) if self.magnitudes else (low, high)


def normal_of(history: ArrayLike, *, axis: int = 0, magnitudes: bool = False, floor: ArrayLike | None = None) -> Normal:
    """Gives what is normal along an axis of a history; non-finite entries are left out.

    ``magnitudes`` takes the logarithm of absolute values; zeros are then left out as well. ``floor`` is a least scale
    of the caller's own (for magnitudes in units of the logarithm), such as what rounding of the format may change.
    """
    values = np.moveaxis(np.asarray(history, np.float64), axis, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.log(np.abs(values)) if magnitudes else values
    values = np.where(np.isfinite(values), values, np.nan)
    count = np.asarray(np.sum(~np.isnan(values), axis=0), np.int64)
    centre = median(values)
    distances = np.abs(values - centre)
    deviation = MAD_TO_DEVIATION * median(distances)
    mean = np.nansum(distances, axis=0) / np.maximum(count, 1)
    scale = np.where(deviation > 0, deviation, MEAN_TO_DEVIATION * mean) * widening(count)
    scale = np.fmax(scale, LOG_FLOOR if magnitudes else RELATIVE_FLOOR * np.abs(centre))
    if floor is not None:
        scale = np.fmax(scale, np.asarray(floor, np.float64))
    return Normal(centre, np.where(count < LEAST_VALUES, np.nan, scale), count, magnitudes)


def scores(
    values: ArrayLike, *, axis: int = 0, magnitudes: bool = False, floor: ArrayLike | None = None
) -> NDArray[np.float64]:
    """Scores each value against all along its axis: over steps against the history, over ranks against the replicas.

    The value itself is among them, which moves median and MAD by no more than a rank: half must be wild to hide one.

    >>> import numpy as np
    >>> norms = np.array([1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.02, 0.97, 400.0])
    >>> bool(scores(norms, magnitudes=True)[-1] > THRESHOLD)
    True
    """
    array = np.asarray(values, np.float64)
    normal = normal_of(array, axis=axis, magnitudes=magnitudes, floor=floor)
    return np.moveaxis(normal.score(np.moveaxis(array, axis, 0)), 0, axis)


def widening(count: ArrayLike) -> NDArray[np.float64]:
    """Gives the factor by which a scale from ``count`` values must grow to give the false alarms of a long history.

    Fitted from above to simulated quantiles (1 in 100,000, Gaussian, 8 to 256 values; the test simulates them anew).
    """
    n = np.maximum(np.asarray(count, np.float64), 1)
    return 1 + 14 / n + 205 / n**2 + 1600 / n**3


def median(values: NDArray[Any]) -> NDArray[np.float64]:
    """Gives the median along the first axis without NaN entries; NaN where there are no others.

    The same as ``np.nanmedian`` without its warnings and without its slow way through each column.
    """
    ordered = np.sort(np.asarray(values, np.float64), axis=0)  # NaN sorts last
    count = np.sum(~np.isnan(ordered), axis=0)
    if not len(ordered):
        return np.full(ordered.shape[1:], np.nan)
    low, high = np.maximum((count - 1) // 2, 0), np.minimum(count // 2, len(ordered) - 1)
    ends = (np.take_along_axis(ordered, np.asarray(i)[None], axis=0)[0] for i in (low, high))
    first, second = ends
    middle: NDArray[np.float64] = np.where(count > 0, first + (second - first) / 2, np.nan)
    return middle


def drift(values: ArrayLike, *, axis: int = 0, magnitudes: bool = False) -> NDArray[np.float64]:
    """Gives how far the last quarter lies from the first, in units of the noise of a step: slow drift, signed.

    The noise is the robust deviation of differences between neighbours over sqrt(2): a slow drift does not enter it,
    while it widens the MAD of the values themselves. NaN with fewer than ``4 * LEAST_VALUES`` values.
    """
    array = np.moveaxis(np.asarray(values, np.float64), axis, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        array = np.log(np.abs(array)) if magnitudes else array
    array = np.where(np.isfinite(array), array, np.nan)
    quarter = len(array) // 4
    if quarter < LEAST_VALUES:
        return np.full(array.shape[1:], np.nan)
    first, last = median(array[:quarter]), median(array[-quarter:])
    noise = MAD_TO_DEVIATION * median(np.abs(np.diff(array, axis=0))) / 2**0.5
    floor = LOG_FLOOR if magnitudes else RELATIVE_FLOOR * np.abs(first)
    scale = np.fmax(noise, floor)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(scale > 0, (last - first) / scale, np.where(last == first, 0.0, np.nan))
