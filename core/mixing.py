"""The 64-bit mixing function under sketches and checksums.

The finaliser of SplitMix64 (Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators, OOPSLA 2014; public
domain): a bijection of 64-bit words in which each input bit flips each output bit with probability near one half.
All arithmetic is modulo 2^64, so signed and unsigned implementations agree bit for bit.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

#: 2^64 divided by the golden ratio, odd: consecutive indices are spread over all words before they are mixed.
GOLDEN: Final = 0x9E3779B97F4A7C15
#: (shift, multiplier) of the two rounds, and the last shift.
ROUNDS: Final = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))
LAST_SHIFT: Final = 31

WORD: Final = 2**64


def mix(words: Words) -> Words:
    """Mixes each word."""
    mixed = words.copy()
    mix_in_place(mixed, np.empty_like(mixed))
    return mixed


def mix_in_place(words: Words, scratch: Words) -> None:
    """Mixes each word where it stands, with ``scratch`` of the same shape for intermediate results."""
    for shift, multiplier in ROUNDS:
        np.right_shift(words, np.uint64(shift), out=scratch)
        np.bitwise_xor(words, scratch, out=words)
        np.multiply(words, np.uint64(multiplier), out=words)
    np.right_shift(words, np.uint64(LAST_SHIFT), out=scratch)
    np.bitwise_xor(words, scratch, out=words)


def keys(indices: Words, seed: int) -> Words:
    """Gives a well mixed word for each index; families of different seeds are unrelated."""
    spread = indices * np.uint64(GOLDEN)
    spread += np.uint64(seed)
    mix_in_place(spread, np.empty_like(spread))
    return spread
