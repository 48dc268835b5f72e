"""Row and column sums recognise fused, interleaved and transposed weights, whichever path computes them."""

import numpy as np
import pytest

from msprobe.core import kernels
from msprobe.core.checksums import bits_of, checksums, checksums_of
from msprobe.core.content_vectors import content_vectors, has_vectors


def sums(values):
    return content_vectors(*bits_of(values))


@pytest.mark.usefixtures("each_path")
def test_vectors_recognise_concatenation_interleaving_and_transposition():
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((4, 6)).astype(np.float32) for _ in "qk")
    fused = sums(np.concatenate([q, k]))
    assert np.array_equal(fused[0], np.concatenate([sums(q)[0], sums(k)[0]]))
    interleaved = sums(np.stack([q, k], axis=1).reshape(8, 6))
    assert np.array_equal(interleaved[0], np.stack([sums(q)[0], sums(k)[0]], axis=1).ravel())
    assert np.array_equal(interleaved[1], fused[1])
    transposed = sums(q.T)
    assert np.array_equal(transposed[0], sums(q)[1])
    assert np.array_equal(transposed[1], sums(q)[0])
    assert fused[0].sum(dtype=np.uint64) == checksums_of(np.concatenate([q, k]))[1]


@pytest.mark.usefixtures("each_path")
def test_columns_of_parts_add_up_to_those_of_the_whole():
    values = np.random.default_rng(1).standard_normal((5, 7, 3)).astype(np.float16)
    top, bottom = sums(values[:2]), sums(values[2:])
    assert np.array_equal(top[1] + bottom[1], sums(values)[1])
    assert np.array_equal(np.concatenate([top[0], bottom[0]]), sums(values)[0])


@pytest.mark.parametrize(("width", "dtype"), [(1, "fp8_e4m3"), (2, "bf16"), (4, "fp32"), (8, "fp64"), (4, "int32")])
def test_both_paths_agree_on_any_bits(width, dtype):
    bits = np.random.default_rng(2).integers(0, 2 ** (8 * width), size=(50, 33), dtype=f"u{width}")
    in_c = content_vectors(bits, dtype)
    with kernels.without():
        in_numpy = content_vectors(bits, dtype)
    assert all(np.array_equal(x, y) for x, y in zip(in_c, in_numpy, strict=True))
    assert int(in_c[0].sum(dtype=np.uint64)) == checksums(bits, dtype)[1]


def test_of_one_dimension_each_element_is_a_row():
    rows, columns = sums(np.array([1.0, 2.0, 1.0], np.float32))
    assert rows[0] == rows[2] != rows[1]
    assert columns.shape == (1,)


def test_huge_and_complex_tensors_have_none():
    assert has_vectors((151_936, 4096), "bf16")
    assert not has_vectors((2**20, 4), "bf16")
    assert not has_vectors((4, 4), "complex64")
    assert not has_vectors((), "fp32")
