"""The two mixing functions of 64-bit words under sketches and checksums.

``mix`` makes the keys: the finaliser of SplitMix64 (Steele, Lea, Flood, Fast Splittable Pseudorandom Number Generators,
OOPSLA 2014; public domain), a bijection in which each input bit flips each output bit with probability near one half.

``scatter`` spreads the bits of an element. It is a bijection too, for each of its steps is one, and costs two
multiplications of 32 bits; the square makes it non-linear, so that equal changes of two elements, such as flips of
their signs, change their images by different words.

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

#: Odd, 32 bits of 2^64 divided by the golden ratio; and what keeps 0 from being its own image (fractional part of
#: sqrt 11).
SCATTER_MULTIPLIER: Final = 0x9E3779B1
SCATTER_INCREMENT: Final = 0x510E527FADE682D1


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


def scatter_in_place(words: Words, scratch: Words) -> None:
    """Scatters each word where it stands, with ``scratch`` of the same shape for intermediate results.

    fold the upper half onto the lower one; multiply and add; xor the upper half of the lower half's square onto the
    upper half; fold again.
    """
    half, low, high = np.uint64(32), np.uint64(0xFFFFFFFF), np.uint64(0xFFFFFFFF00000000)
    np.right_shift(words, half, out=scratch)
    np.bitwise_xor(words, scratch, out=words)
    np.multiply(words, np.uint64(SCATTER_MULTIPLIER), out=words)
    np.add(words, np.uint64(SCATTER_INCREMENT), out=words)
    np.bitwise_and(words, low, out=scratch)
    np.multiply(scratch, scratch, out=scratch)
    np.bitwise_and(scratch, high, out=scratch)
    np.bitwise_xor(words, scratch, out=words)
    np.right_shift(words, half, out=scratch)
    np.bitwise_xor(words, scratch, out=words)


def keys(indices: Words, seed: int) -> Words:
    """Gives a well mixed word for each index; families of different seeds are unrelated."""
    spread = indices * np.uint64(GOLDEN)
    spread += np.uint64(seed)
    mix_in_place(spread, np.empty_like(spread))
    return spread
