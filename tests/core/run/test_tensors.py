"""Saved bits come back as they were, whatever the format, and safetensors itself can read them."""

import numpy as np
import pytest
import torch
from safetensors import safe_open

from msprobe.core.dtypes import FORMATS
from msprobe.core.errors import RunError
from msprobe.core.run.decoding import decode
from msprobe.core.run.tensors import Shard, StoredTensor, shards, write_shard

TORCH_FP8 = {
    "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2",
    "fp8_e4m3fnuz": "float8_e4m3fnuz",
    "fp8_e5m2fnuz": "float8_e5m2fnuz",
    "fp8_e8m0": "float8_e8m0fnu",
}


def stored(dtype, shape, key="1"):
    size = FORMATS[dtype].bits // 8 * int(np.prod(shape))
    data = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 256, size, np.uint8)
    return StoredTensor(key, dtype, shape, data)


@pytest.mark.parametrize("dtype", sorted(FORMATS.keys() - {"tf32"}))  # tf32 is stored as fp32, which holds it exactly
@pytest.mark.parametrize("shape", [(3, 5), (), (0, 4)])
def test_bits_and_form_round_trip(tmp_path, dtype, shape):
    tensor = stored(dtype, shape)
    write_shard(tmp_path / "a.safetensors", [stored("uint8", (1,), "0"), tensor])

    found = Shard(tmp_path / "a.safetensors").read("1")

    assert found is not None
    data = np.asarray(found.data)
    assert (found.dtype, found.shape) == (dtype, shape)
    assert data.tobytes() == tensor.data.tobytes()
    assert decode(found.dtype, found.shape, data).shape == shape


def test_unknown_format_keeps_its_bytes_and_its_name(tmp_path):
    write_shard(tmp_path / "a.safetensors", [StoredTensor("1", "fp4", (6,), b"\x01\x02\x03")])

    found = Shard(tmp_path / "a.safetensors").read("1")

    assert found is not None
    data = np.asarray(found.data)
    assert (found.dtype, found.shape, data.tobytes()) == ("fp4", (6,), b"\x01\x02\x03")
    with pytest.raises(ValueError, match="fp4"):
        decode(found.dtype, found.shape, data)


def test_safetensors_reads_a_shard(tmp_path):
    values = torch.randn(4, 3).bfloat16()
    bits = values.view(torch.uint8).numpy()
    tensors = [StoredTensor("7", "bf16", (4, 3), bits), stored("fp64", (2,), "8"), stored("complex64", (2,), "9")]
    write_shard(tmp_path / "a.safetensors", tensors)

    with safe_open(str(tmp_path / "a.safetensors"), "pt") as file:
        assert sorted(file.keys()) == ["7", "8", "9"]
        assert torch.equal(file.get_tensor("7"), values)
        assert file.get_tensor("9").shape == (2, 2)


@pytest.mark.parametrize("dtype", TORCH_FP8)
def test_every_fp8_code_decodes_as_torch_decodes_it(dtype):
    torch_dtype = getattr(torch, TORCH_FP8[dtype], None)
    if torch_dtype is None:
        pytest.skip("this torch has no such format")
    codes = np.arange(256, dtype=np.uint8)

    expected = torch.from_numpy(codes.copy()).view(torch_dtype).float().numpy()

    np.testing.assert_array_equal(decode(dtype, (256,), codes), expected)


def test_every_bf16_code_decodes_as_torch_decodes_it():
    codes = np.arange(2**16, dtype=np.uint16)

    expected = torch.from_numpy(codes.view(np.int16).copy()).view(torch.bfloat16).float().numpy()

    np.testing.assert_array_equal(decode("bf16", codes.shape, codes.view(np.uint8)), expected)


def test_shards_are_bounded_and_keep_order():
    tensors = [stored("uint8", (size,), str(i)) for i, size in enumerate([4, 4, 4, 100, 1])]

    groups = list(shards(tensors, limit=8))

    assert [[t.key for t in group] for group in groups] == [["0", "1"], ["2"], ["3"], ["4"]]


@pytest.mark.parametrize("length", [0, 5, 40, -1])
def test_truncated_shard_is_refused_by_name(tmp_path, length):
    path = tmp_path / "a.safetensors"
    write_shard(path, [stored("fp32", (100,))])
    path.write_bytes(path.read_bytes()[:length])

    with pytest.raises(RunError, match=r"a\.safetensors"):
        Shard(path)
