"""Compare two tensors by signal to noise, the reference being the signal, in decibels."""

from __future__ import annotations

import math

from msprobe.core.measures import MeasuredPair, OfPair


class Sqnr(OfPair):
    """+Inf for equal values; -Inf when only the reference is all zeros, or non-finite elements are unlike.

    NaN when both sides are all zeros and when no element is finite. 20 dB is one decimal digit.
    """

    name = "sqnr"
    better = "higher"
    formula = "20 log10(||r|| / ||c - r||)"
    source = "Signal-to-quantization-noise ratio; Bennett, Spectra of Quantized Signals, Bell Syst. Tech. J., 1948."

    def compare_pair(self, pair: MeasuredPair) -> float:
        """Gives the ratio in decibels over the elements that are finite on both sides."""
        measures = pair.measures
        if measures.nonfinite_differs:
            return -math.inf
        if measures.l2_difference == 0:
            return math.inf if measures.l2_reference else math.nan
        if measures.l2_reference == 0:
            return -math.inf
        return 20.0 * (math.log10(measures.l2_reference) - math.log10(measures.l2_difference))
