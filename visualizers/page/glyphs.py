"""Draw the sign of each verdict: shape repeats colour, so that a grey print still reads."""

from __future__ import annotations

from msprobe.visualizers.page.markup import Markup, join, tag


def _shape(verdict: str) -> Markup:
    own = f"g-{verdict}"
    if verdict == "introduced":
        return tag("path", d="M6 .4 11.6 6 6 11.6.4 6z", class_=own)
    if verdict == "suspect":
        return tag("path", d="M6 1.2 11.2 10.6H.8z", class_=own)
    if verdict == "inherited":
        return tag("path", d="M6 1.6v8M2.8 6.4 6 9.9l3.2-3.5", class_=own)
    if verdict == "normal":
        return tag("circle", cx=6, cy=6, r=3.9, class_=own)
    if verdict == "equal":
        bars = tag("path", d="M3.8 4.9h4.4M3.8 7.1h4.4", class_=f"{own}-bars")
        return join(tag("circle", cx=6, cy=6, r=4.6, class_=own), bars)
    if verdict == "inconclusive":
        dot = tag("circle", cx=6, cy=9.6, r=0.95, class_=f"{own}-dot")
        return join(tag("path", d="M4 4.2a2 2 0 1 1 2.6 2c-.5.2-.6.6-.6 1.2", class_=own), dot)
    return tag("rect", x=1.7, y=1.7, width=8.6, height=8.6, class_=own)


def glyph(verdict: str, *, size: int = 12) -> Markup:
    """Gives the sign as decoration: the verdict's name must stand beside it."""
    return tag("svg", _shape(verdict), class_="glyph", width=size, height=size, viewBox="0 0 12 12", aria_hidden="true")


def symbols() -> Markup:
    """Gives every sign once as an SVG symbol, for the rows that the script draws."""
    verdicts = ("introduced", "suspect", "inherited", "normal", "equal", "inconclusive", "unmatched")
    drawn = [tag("symbol", _shape(verdict), id=f"sign-{verdict}", viewBox="0 0 12 12") for verdict in verdicts]
    return tag("svg", *drawn, width=0, height=0, class_="hidden-signs", aria_hidden="true")
