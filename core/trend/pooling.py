"""Pools cells down to the pixels that there are, so that one bad cell among millions still colours its pixel.

A pixel's state is the worst of its cells' (``states.State`` is in order of concern), its value the highest or the
lowest finite one. Nothing is averaged: an average hides what is looked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a picture: the values on it in order (steps, ranks or sites), and how many fall in each pixel."""

    name: str
    values: NDArray[np.int64]
    pixels: int

    @classmethod
    def of(cls, name: str, values: NDArray[Any], most_pixels: int) -> Axis:
        """Makes an axis with as many pixels as there are values, or as there is room for."""
        return cls(name, np.asarray(values, np.int64), max(1, min(len(values), most_pixels)))

    def pixel_of(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Gives the pixel of each value, -1 where it is not on the axis."""
        if not len(self.values):
            return np.full(len(values), -1, np.int64)
        low = int(self.values.min())
        table = np.full(int(self.values.max()) - low + 2, -1, np.int64)
        table[self.values - low] = np.arange(len(self.values)) * self.pixels // len(self.values)
        wanted = np.asarray(values, np.int64) - low
        wanted[(wanted < 0) | (wanted >= len(table) - 1)] = len(table) - 1
        return table[wanted]

    @property
    def starts(self) -> NDArray[np.int64]:
        """Gives the position in ``values`` at which each pixel starts."""
        return -(-np.arange(self.pixels) * len(self.values) // self.pixels)


def pool(
    pixels: NDArray[np.int64], values: NDArray[np.float64], states: NDArray[np.uint8], count: int, *, lowest: bool
) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Gives value and state of ``count`` pixels; cells of pixel -1 are left out, pixels without cells are absent."""
    inside = pixels >= 0
    if not inside.all():
        pixels, values, states = pixels[inside], values[inside], states[inside]
    pooled, worst = np.full(count, np.nan), np.zeros(count, np.uint8)
    pooled[pixels], worst[pixels] = values, states
    if len(pixels) and not _each_once(pixels, count):
        pooled[:], worst[:] = np.nan, 0
        (np.fmin if lowest else np.fmax).at(pooled, pixels, values)
        np.maximum.at(worst, pixels, states)
    return pooled, worst


def _each_once(pixels: NDArray[np.int64], count: int) -> bool:
    seen = np.zeros(count, bool)
    seen[pixels] = True
    return int(seen.sum()) == len(pixels)
