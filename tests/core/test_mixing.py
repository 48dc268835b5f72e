"""The functions under checksums and sketches are bijections, and no change of two elements cancels."""

import numpy as np
import pytest

from msprobe.core.checksums import position_keys
from msprobe.core.mixing import SCATTER_INCREMENT, SCATTER_MULTIPLIER, mix, scatter_in_place


def scatter(words):
    scattered = words.copy()
    scatter_in_place(scattered, np.empty_like(words))
    return scattered


def test_mixing_is_a_bijection_on_what_can_be_tried():
    """A bijection makes the change of a single element visible whatever it is."""
    low = np.arange(2**16, dtype=np.uint64)
    for shift in (0, 16, 32, 48):
        assert len(np.unique(mix(low << np.uint64(shift)))) == len(low)
        assert len(np.unique(scatter(low << np.uint64(shift)))) == len(low)


def test_each_step_of_scattering_can_be_undone():
    """So that no two words have one image."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    words = np.random.default_rng(0).integers(0, 2**64, 100_000, dtype=np.uint64)
    back = scatter(words)
    back ^= back >> half
    back ^= (back & low) * (back & low) & ~low
    back = (back - np.uint64(SCATTER_INCREMENT)) * np.uint64(pow(SCATTER_MULTIPLIER, -1, 2**64))
    assert np.array_equal(back ^ back >> half, words)


def test_keys_are_odd_so_that_no_change_of_one_element_vanishes():
    keys = position_keys(np.random.default_rng(0).integers(0, 2**62, 100_000, dtype=np.uint64))
    assert (keys & np.uint64(1)).all()
    assert len(np.unique(keys)) == len(keys)


def changes_of_two():
    """What happens to the bits of two elements, given their width in bits."""
    one = np.uint64(1)
    yield "random bits", lambda x, width, rng: rng.integers(0, 2**width - 1, x.shape, dtype=np.uint64, endpoint=True)
    yield "top bits flipped", lambda x, width, rng: x ^ one << np.uint64(width - 1)
    yield "low bits flipped", lambda x, width, rng: x ^ one
    yield "exponents raised", lambda x, width, rng: x + (one << np.uint64(width - 9))
    yield "swapped", lambda x, width, rng: x[::-1]
    yield "one up, one down", lambda x, width, rng: np.stack([x[0] + one, x[1] - one])
    yield "bytes reversed", lambda x, width, rng: x.byteswap() >> np.uint64(64 - width)


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize(("name", "change"), list(changes_of_two()), ids=[name for name, _ in changes_of_two()])
def test_millions_of_changes_of_two_elements_all_show(name, change, width):
    """The change of the sum must never be 0, and of half a million no two may be the same."""
    rng = np.random.default_rng(0)
    count = 500_000
    kind = f"f{width // 8}"
    old = np.abs(rng.standard_normal((2, count)).astype(kind)).view(f"u{width // 8}").astype(np.uint64) + np.uint64(1)
    new = change(old, width, rng)
    where = rng.integers(0, 2**20, (2, count), dtype=np.uint64)
    where[1] += np.uint64(2**20)
    moved = scatter(np.ascontiguousarray(new)) - scatter(old)
    differs = (new != old).any(0)
    positional = (moved * position_keys(where)).sum(0)[differs]
    assert np.count_nonzero(positional == 0) == 0
    assert len(np.unique(positional)) == len(positional) > 0.99 * count
    content = moved.sum(0)[differs]
    if name != "swapped":
        assert np.count_nonzero(content == 0) == 0
        assert len(np.unique(content)) == len(content)
