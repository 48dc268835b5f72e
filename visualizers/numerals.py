"""Write numbers so that NaN, the infinities, zero and "not recorded" stay four different things.

Everything that people read goes through here; files for programs (CSV, Parquet) keep full precision instead.
"""

from __future__ import annotations

import math

#: What stands where nothing was recorded or measured.
ABSENT = "-"

#: Between these magnitudes a number is written out; outside of them as a power of ten.
_SMALLEST_PLAIN = 1e-3
_LARGEST_PLAIN = 1e6


def number(value: float, digits: int = 3) -> str:
    """Writes a number with ``digits`` significant digits.

    >>> number(412.4), number(0.00123456), number(1234567.0), number(-0.0), number(float("-inf"))
    ('412', '0.00123', '1.23e6', '-0', '-Inf')
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if value == 0:
        return "-0" if math.copysign(1.0, value) < 0 else "0"
    # Rounding first: 999.96 has four digits before the point once three are kept.
    value = float(f"{value:.{digits - 1}e}")
    exponent = math.floor(math.log10(abs(value)))
    if _SMALLEST_PLAIN <= abs(value) < _LARGEST_PLAIN:
        return f"{value:,.{max(0, digits - 1 - exponent)}f}"
    mantissa, _, power = f"{value:.{digits - 1}e}".partition("e")
    return f"{mantissa}e{int(power)}"


def measured(value: float, *, present: bool) -> str:
    """Writes a measured number, or the sign for "not measured"; a NaN that was measured stays NaN."""
    return number(value) if present else ABSENT


def share(value: float) -> str:
    """Writes a share in percent; nothing short of all is shown as 100 %, nothing above none as 0 %.

    >>> share(1.0), share(0.99999), share(0.5), share(0.00001), share(float("nan"))
    ('100 %', '99.9 %', '50.0 %', '0.1 %', '-')
    """
    if math.isnan(value):
        return ABSENT
    if value in (0.0, 1.0):
        return f"{value:.0%}".replace("%", " %")
    return f"{min(99.9, max(0.1, 100 * value)):.1f} %"


def count(value: int) -> str:
    """Writes a count with thousands separated."""
    return f"{value:,}"


def plural(value: int, noun: str) -> str:
    """Writes a count with its noun.

    >>> plural(1, "site"), plural(2300, "site")
    ('1 site', '2,300 sites')
    """
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"
