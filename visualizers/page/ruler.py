"""Draw an error beside its bound on one logarithmic ruler: a number never comes without its yardstick.

All rulers of a page have one scale, so that their pointers compare by eye.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from msprobe.visualizers.numerals import number
from msprobe.visualizers.page.markup import Markup, join, tag

#: A ruler runs from 0.1 epsilon, what lies below sits on its edge, at least up to 10,000.
_LOWEST, _LEAST_HIGHEST = -1, 4
_WIDTH, _EDGE, _MIDDLE = 320.0, 4.0, 9.0
#: More ticks would run into each other.
_MOST_STRIDES = 5
#: Up to this power of ten a tick is labelled with its digits.
_LARGEST_PLAIN = 4


@dataclass(frozen=True, slots=True)
class Scale:
    """The powers of ten at which the rulers of a page end."""

    highest: int = _LEAST_HIGHEST

    @classmethod
    def reaching(cls, values: Iterable[float]) -> Scale:
        """Gives the scale that holds all finite values and ends at a tick."""
        largest = max((value for value in values if math.isfinite(value) and value > 0), default=1.0)
        highest = max(_LEAST_HIGHEST, math.ceil(math.log10(largest)))
        stride = cls(highest).stride
        return cls(-(-highest // stride) * stride)

    @property
    def stride(self) -> int:
        """How many powers of ten lie between two ticks."""
        return 1 if self.highest <= _LEAST_HIGHEST else -(-self.highest // _MOST_STRIDES)

    def x(self, value: float) -> float:
        """Gives where a value stands."""
        return self.at(self.highest if math.isinf(value) else math.log10(max(value, 10.0**_LOWEST)))

    def at(self, exponent: float) -> float:
        """Gives where a power of ten stands."""
        exponent = min(exponent, self.highest)
        return round(_EDGE + (_WIDTH - 2 * _EDGE) * (exponent - _LOWEST) / (self.highest - _LOWEST), 2)

    def ticks(self) -> list[tuple[int, str]]:
        """Gives the powers of ten that are marked, and their labels."""
        powers = [power for power in range(_LOWEST, self.highest + 1) if power % self.stride == 0]
        return [(power, f"{10.0**power:,g}" if power <= _LARGEST_PLAIN else f"1e{power}") for power in powers]


def ruler(error: float, bound: float, verdict: str, scale: Scale) -> Markup:
    """Gives the drawing for an error and a bound in epsilon; an unknown bound has no zone."""
    said = f"error {number(error)} epsilon, bound {number(bound) if bound == bound else 'not known'}"
    parts = [tag("path", d=f"M{_EDGE:g} {_MIDDLE:g}H{_WIDTH - _EDGE:g}", class_="ruler-line"), *_marks(scale)]
    if bound == bound:
        x = scale.x(bound)
        zone = tag("rect", x=_EDGE, y=_MIDDLE - 4, width=round(x - _EDGE, 2), height=8, class_="ruler-zone")
        parts = [zone, *parts, tag("path", d=f"M{x:g} 2.5v13", class_="ruler-bound")]
    if error == 0:
        parts.append(tag("path", d=f"M{_EDGE:g} 5v8", class_="ruler-zero"))
    elif error == error:
        parts.append(_pointer(scale.x(error), verdict))
    return tag(
        "svg",
        *parts,
        class_="ruler",
        viewBox=f"0 0 {_WIDTH:g} 30",
        preserveAspectRatio="xMinYMid",
        role="img",
        aria_label=said,
    )


def _marks(scale: Scale) -> list[Markup]:
    drawn = []
    for power, text in scale.ticks():
        x = scale.at(power)
        anchor = "start" if power == _LOWEST else "end" if power == scale.highest else "middle"
        drawn.append(tag("path", d=f"M{x:g} 6.5v5", class_="ruler-line"))
        drawn.append(tag("text", text, x=x, y=27, text_anchor=anchor))
    return drawn


def _pointer(x: float, verdict: str) -> Markup:
    if verdict == "introduced":
        return tag("path", d=f"M{x:g} {_MIDDLE - 5.5:g}l5.5 5.5-5.5 5.5-5.5-5.5z", class_="g-introduced")
    if verdict == "suspect":
        return tag("path", d=f"M{x:g} {_MIDDLE - 5:g}l5 9h-10z", class_="g-suspect")
    return join(tag("circle", cx=x, cy=_MIDDLE, r=3, class_=f"g-{verdict}"))
