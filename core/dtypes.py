"""Canonical names of number formats, and what each means for rounding.

The short names are those in common use (``bf16``, ``fp8_e4m3``). The unit roundoff u is half the spacing of
numbers at 1, so that rounding to the format errs by at most u relative (Higham, Accuracy and Stability of
Numerical Algorithms, 2nd ed., section 2.1).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """A number format: ``bits`` wide; ``unit_roundoff`` is 0 for exact formats (integers, bool)."""

    name: str
    bits: int
    kind: str
    unit_roundoff: float = 0.0
    largest: float = 0.0


FORMATS: dict[str, Format] = {
    f.name: f
    for f in (
        Format("fp64", 64, "float", 2.0**-53, 1.7976931348623157e308),
        Format("fp32", 32, "float", 2.0**-24, 3.4028234663852886e38),
        Format("tf32", 32, "float", 2.0**-11, 3.4028234663852886e38),
        Format("fp16", 16, "float", 2.0**-11, 65504.0),
        Format("bf16", 16, "float", 2.0**-8, 3.3895313892515355e38),
        Format("fp8_e4m3", 8, "float", 2.0**-4, 448.0),
        Format("fp8_e5m2", 8, "float", 2.0**-3, 57344.0),
        Format("fp8_e4m3fnuz", 8, "float", 2.0**-4, 240.0),
        Format("fp8_e5m2fnuz", 8, "float", 2.0**-3, 57344.0),
        Format("fp8_e8m0", 8, "float", 0.5, 1.7014118346046923e38),
        Format("complex32", 32, "complex", 2.0**-11, 65504.0),
        Format("complex64", 64, "complex", 2.0**-24, 3.4028234663852886e38),
        Format("complex128", 128, "complex", 2.0**-53, 1.7976931348623157e308),
        Format("bool", 8, "bool"),
        *(Format(f"{sign}int{bits}", bits, "int") for sign in ("", "u") for bits in (8, 16, 32, 64)),
    )
}


def unit_roundoff(name: str) -> float:
    """Gives the unit roundoff of a format by canonical name; 0 for exact and for unknown formats."""
    known = FORMATS.get(name)
    return known.unit_roundoff if known else 0.0


def is_discrete(name: str) -> bool:
    """Tells whether values of the format are exact codes (integers, bool), not rounded quantities."""
    known = FORMATS.get(name)
    return known is not None and known.kind in ("int", "bool")
