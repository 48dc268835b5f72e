"""Checksums notice every change, and add over shards."""

import itertools
import zlib

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe.core.checksums import (
    bits_of,
    canonical_words,
    checksums,
    checksums_of,
    crc32,
)

pytestmark = pytest.mark.usefixtures("each_path")

DTYPES = ["bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"]
BITS = {1: "u1", 2: "u2", 4: "u4", 8: "u8"}


def positional(values):
    return checksums_of(values)[0]


def random_bits(dtype, size, seed=0):
    raw = np.random.default_rng(seed).integers(0, 256, size * np.dtype(dtype).itemsize, dtype=np.uint8)
    return (raw % 2).astype(bool) if dtype == "bool" else raw.view(dtype)


@pytest.mark.parametrize("dtype", ["f8", "i8", "f4", "f2", "i4"])
def test_flipping_the_top_bits_of_any_two_elements_shows(dtype):
    values = np.abs(np.random.default_rng(0).standard_normal(200) * 100).astype(dtype)
    unchanged = positional(values)
    bits = values.view(BITS[values.itemsize])
    top = bits.dtype.type(1 << (8 * values.itemsize - 1))
    for i in range(0, 200, 7):
        for j in range(i + 1, 200, 11):
            bits[[i, j]] ^= top
            assert positional(values) != unchanged
            bits[[i, j]] ^= top


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "f2"])
@pytest.mark.parametrize("size", [2, 64, 1000])
def test_negating_the_whole_tensor_shows(dtype, size):
    values = np.arange(1, size + 1).astype(dtype)
    assert positional(-values) != positional(values)
    assert checksums_of(-values)[1] != checksums_of(values)[1]


def test_swapping_x_and_minus_x_shows_in_place_but_not_in_content():
    values = np.random.default_rng(0).standard_normal(100)
    values[60] = -values[10]
    swapped = values.copy()
    swapped[[10, 60]] = values[[60, 10]]
    assert positional(swapped) != positional(values)
    assert checksums_of(swapped)[1] == checksums_of(values)[1]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_permutation_shows_in_place_but_not_in_content(dtype):
    values = random_bits(dtype, 512)
    permuted = np.random.default_rng(1).permutation(values)
    assert positional(permuted) != positional(values)
    assert checksums_of(permuted)[1] == checksums_of(values)[1]


@given(
    hnp.arrays(st.sampled_from(["f4", "f8", "i8", "u2", "c8"]), st.integers(1, 40)),
    st.data(),
)
def test_changing_one_bit_of_any_element_shows(values, data):
    bits, dtype = bits_of(values)
    words = canonical_words(bits, dtype)
    changed = bits.copy()
    where = data.draw(st.integers(0, bits.size - 1))
    changed.reshape(-1)[where] ^= bits.dtype.type(1 << data.draw(st.integers(0, 8 * bits.itemsize - 1)))
    same = np.array_equal(canonical_words(changed, dtype), words)
    assert (checksums(changed, dtype)[0] == checksums(bits, dtype)[0]) == same


@given(
    hnp.arrays(st.sampled_from(["f4", "i8", "f2", "c16"]), st.integers(0, 200)),
    st.lists(st.integers(0, 200), max_size=6),
    st.integers(0, 2**33),
)
def test_checksums_of_contiguous_shards_add(values, cuts, offset):
    width = 2 if values.dtype.kind == "c" else 1
    edges = sorted({0, len(values), *(c for c in cuts if c < len(values))})
    parts = [checksums_of(values[a:b], offset=offset + width * a) for a, b in itertools.pairwise(edges)]
    whole = checksums_of(values, offset=offset)
    assert tuple(sum(part[i] for part in parts) % 2**64 for i in (0, 1)) == whole


@given(st.integers(1, 5), st.integers(0, 2), hnp.array_shapes(min_dims=3, max_dims=3, max_side=30))
def test_checksums_of_shards_along_any_dimension_add(shards, axis, shape):
    whole = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    where = np.arange(whole.size).reshape(shape)
    pieces = zip(np.array_split(whole, shards, axis), np.array_split(where, shards, axis), strict=True)
    assert sum(checksums_of(x, runs=(i.ravel(), 1))[0] for x, i in pieces) % 2**64 == positional(whole)


@pytest.mark.parametrize("size", [0, 1, 16383, 16384, 16385, 70_000])
@pytest.mark.parametrize("offset", [0, 5])
def test_sizes_around_a_block(size, offset):
    values = np.random.default_rng(0).standard_normal(size).astype(np.float32)
    assert checksums_of(values, offset=offset) == checksums_of(values, runs=(np.arange(offset, offset + size), 1))


def test_every_nan_is_the_same_and_differs_from_infinity():
    quiet = np.array([np.nan], np.float32)
    payload = np.array([0xFF812345], np.uint32).view(np.float32)
    assert checksums_of(quiet) == checksums_of(payload)
    assert checksums_of(quiet) != checksums_of(np.array([np.inf], np.float32))


@pytest.mark.parametrize(
    ("dtype", "patterns", "width"),
    [
        ("bf16", [0x7FC0, 0xFFC0, 0x7F81], "u2"),
        ("fp8_e4m3", [0x7F, 0xFF], "u1"),
        ("fp8_e5m2", [0x7D, 0x7E, 0xFF], "u1"),
        ("fp16", [0x7E00, 0x7C01, 0xFE00], "u2"),
    ],
)
def test_nan_of_formats_that_numpy_lacks(dtype, patterns, width):
    words = canonical_words(np.array(patterns, width), dtype)
    assert len(set(words.tolist())) == 1


@pytest.mark.parametrize(("dtype", "largest"), [("bf16", 0x7F80), ("fp8_e4m3", 0x7E), ("fp8_e5m2", 0x7C)])
def test_the_largest_number_or_infinity_is_no_nan(dtype, largest):
    width = "u2" if dtype == "bf16" else "u1"
    assert canonical_words(np.array([largest], width), dtype)[0] == largest


def test_minus_zero_is_not_zero():
    assert checksums_of(np.array([-0.0])) != checksums_of(np.array([0.0]))


def test_the_number_of_zeros_matters():
    assert checksums_of(np.zeros(3)) != checksums_of(np.zeros(4))
    assert checksums_of(np.zeros(0)) == (0, 0)


def test_layout_does_not_matter_but_order_does():
    values = np.arange(12.0).reshape(3, 4)
    assert checksums_of(np.asfortranarray(values)) == checksums_of(values)
    assert positional(values.T) != positional(values)


def test_a_complex_number_is_two_elements():
    assert checksums_of(np.array([1 + 2j, -3j])) == checksums_of(np.array([1.0, 2.0, -0.0, -3.0]))


def test_arguments_are_not_changed():
    values = np.array([1.0, np.nan])
    values.flags.writeable = False
    checksums_of(values)


def test_text_has_no_checksum():
    with pytest.raises(ValueError, match="no checksum is defined for dtype"):
        checksums_of(np.array(["a"]))


def test_crc32_is_that_of_the_bytes():
    values = np.arange(5, dtype=np.float32)
    assert crc32(values) == f"{zlib.crc32(values.tobytes()):08x}"
    assert crc32(values.reshape(5, 1).T) == crc32(values)
    assert crc32(np.frombuffer(b"123456789", np.uint8)) == "cbf43926"


def test_the_definition_never_changes():
    """Checksums of recorded runs are compared with those of later versions."""
    assert checksums_of(np.array([1.0, -2.5, np.nan, 0.0], np.float32)) == PINNED


PINNED = (0xE4770C636A5AB55A, 0x8206DE39F659DA38)
