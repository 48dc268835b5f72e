"""Draw an error beside its bound on one logarithmic ruler: a number never comes without its yardstick."""

from __future__ import annotations

import math

from msprobe.visualizers.numerals import number
from msprobe.visualizers.page.markup import Markup, join, tag

#: The ruler runs from 0.1 to 10,000 epsilon; what lies beyond sits on its edge.
_LOWEST, _HIGHEST = -1, 4
_WIDTH, _EDGE, _MIDDLE = 320.0, 4.0, 9.0
_TICKS = ("0.1", "1", "10", "100", "1k", "10k")


def ruler(error: float, bound: float, verdict: str) -> Markup:
    """Gives the drawing for an error and a bound in epsilon; an unknown bound has no zone."""
    said = f"error {number(error)} epsilon, bound {number(bound) if bound == bound else 'not known'}"
    parts = [tag("path", d=f"M{_EDGE:g} {_MIDDLE:g}H{_WIDTH - _EDGE:g}", class_="ruler-line"), *_scale()]
    if bound == bound:
        x = _x(bound)
        zone = tag("rect", x=_EDGE, y=_MIDDLE - 4, width=round(x - _EDGE, 2), height=8, class_="ruler-zone")
        parts = [zone, *parts, tag("path", d=f"M{x:g} 2.5v13", class_="ruler-bound")]
    if error == 0:
        parts.append(tag("path", d=f"M{_EDGE:g} 5v8", class_="ruler-zero"))
    elif error == error:
        parts.append(_pointer(_x(error), verdict))
    return tag(
        "svg",
        *parts,
        class_="ruler",
        viewBox=f"0 0 {_WIDTH:g} 30",
        preserveAspectRatio="xMinYMid",
        role="img",
        aria_label=said,
    )


def _x(value: float) -> float:
    exponent = _HIGHEST if math.isinf(value) else math.log10(max(value, 10.0**_LOWEST))
    exponent = min(exponent, _HIGHEST)
    return round(_EDGE + (_WIDTH - 2 * _EDGE) * (exponent - _LOWEST) / (_HIGHEST - _LOWEST), 2)


def _scale() -> list[Markup]:
    drawn = []
    for place, text in enumerate(_TICKS):
        x = _x(10.0 ** (_LOWEST + place))
        anchor = "start" if place == 0 else "end" if place == len(_TICKS) - 1 else "middle"
        drawn.append(tag("path", d=f"M{x:g} 6.5v5", class_="ruler-line"))
        drawn.append(tag("text", text, x=x, y=27, text_anchor=anchor))
    return drawn


def _pointer(x: float, verdict: str) -> Markup:
    if verdict == "introduced":
        return tag("path", d=f"M{x:g} {_MIDDLE - 5.5:g}l5.5 5.5-5.5 5.5-5.5-5.5z", class_="g-introduced")
    if verdict == "suspect":
        return tag("path", d=f"M{x:g} {_MIDDLE - 5:g}l5 9h-10z", class_="g-suspect")
    return join(tag("circle", cx=x, cy=_MIDDLE, r=3, class_=f"g-{verdict}"))
