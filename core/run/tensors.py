"""Saved tensors and row statistics as safetensors shards of bounded size, with their exact bits.

The format is a length, a JSON header and the bytes, so it is written and read here: streaming, memory-mapped, and
without asking whether NumPy knows the number format. Formats that safetensors has no name for are stored as a plain
one of the same width; the header's ``__metadata__`` then holds the true format and shape under the tensor's key.
"""

from __future__ import annotations

import json
import mmap
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from msprobe.core.errors import RunError
from msprobe.core.run.batch import num_bytes, raw_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Bytes after which a shard is closed. One tensor larger than that has a shard of its own.
SHARD_BYTES = 256 * 2**20

_NAMES = {
    "fp64": "F64",
    "fp32": "F32",
    "tf32": "F32",
    "fp16": "F16",
    "bf16": "BF16",
    "fp8_e4m3": "F8_E4M3",
    "fp8_e5m2": "F8_E5M2",
    "bool": "BOOL",
    **{f"{sign}int{bits}": f"{letter}{bits}" for sign, letter in (("", "I"), ("u", "U")) for bits in (8, 16, 32, 64)},
}
_FORMATS = {name: format_ for format_, name in _NAMES.items() if format_ != "tf32"}
#: Stand-ins for formats without a name: the stored name, and how many stored numbers make one element.
_STAND_INS = {
    "fp8_e4m3fnuz": ("U8", 1),
    "fp8_e5m2fnuz": ("U8", 1),
    "fp8_e8m0": ("U8", 1),
    "complex32": ("F16", 2),
    "complex64": ("F32", 2),
    "complex128": ("F64", 2),
}


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """One entry of a shard: canonical format, shape and exact bytes."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    data: NDArray[Any] | bytes | bytearray | memoryview

    @property
    def nbytes(self) -> int:
        return num_bytes(self.data)


def shards(tensors: Sequence[StoredTensor], limit: int = SHARD_BYTES) -> Iterator[list[StoredTensor]]:
    """Splits tensors into groups of at most ``limit`` bytes, in order."""
    group: list[StoredTensor] = []
    size = 0
    for tensor in tensors:
        if group and size + tensor.nbytes > limit:
            yield group
            group, size = [], 0
        group.append(tensor)
        size += tensor.nbytes
    if group:
        yield group


def write_shard(path: Path, tensors: Sequence[StoredTensor]) -> int:
    """Writes a shard aside, then gives it its name; gives its size in bytes.

    Raises:
        OSError: It could not be written; nothing of it stays.
    """
    aside = path.with_name(f".{path.name}")
    # Wide elements first, as safetensors' own writer does it: then every tensor is aligned.
    ordered = sorted(tensors, key=lambda t: -_alignment(t))
    try:
        with aside.open("wb", buffering=0) as file:
            size = _write(file, ordered)
        aside.replace(path)
    except OSError:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
        raise
    return size


def _alignment(tensor: StoredTensor) -> int:
    elements = int(np.prod(tensor.shape, dtype=np.int64))
    return tensor.nbytes // elements if elements else 0


def _write(file: BinaryIO, tensors: Sequence[StoredTensor]) -> int:
    header: dict[str, Any] = {"__metadata__": {}}
    end = 0
    for tensor in tensors:
        name, shape = _stored_as(tensor)
        if name != _NAMES.get(tensor.dtype):
            header["__metadata__"][tensor.key] = json.dumps({"dtype": tensor.dtype, "shape": tensor.shape})
        header[tensor.key] = {"dtype": name, "shape": shape, "data_offsets": [end, end + tensor.nbytes]}
        end += tensor.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    _write_all(file, struct.pack("<Q", len(text)) + text)
    for tensor in tensors:
        _write_all(file, tensor.data)
    return 8 + len(text) + end


def _stored_as(tensor: StoredTensor) -> tuple[str, list[int]]:
    name = _NAMES.get(tensor.dtype)
    if name is not None:
        return name, list(tensor.shape)
    if tensor.dtype not in _STAND_INS:
        return "U8", [tensor.nbytes]
    name, count = _STAND_INS[tensor.dtype]
    return name, [*tensor.shape, count] if count > 1 else list(tensor.shape)


def _write_all(file: BinaryIO, data: NDArray[Any] | bytes | bytearray | memoryview) -> None:
    rest = raw_bytes(data)
    while rest:
        rest = rest[file.write(rest) :]


class Shard:
    """A shard file, mapped into memory; tensors are read when asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            (length,) = struct.unpack("<Q", self._map[:8])
            header = json.loads(self._map[8 : 8 + length])
            self._metadata: Mapping[str, str] = header.pop("__metadata__", {})
            self._entries: Mapping[str, Any] = header
            ends = [entry["data_offsets"][1] for entry in header.values()]
        except (OSError, ValueError, struct.error, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{path}: no readable safetensors file ({error}); copy it again") from error
        self._start = 8 + length
        if len(self._map) < self._start + max(ends, default=0):
            raise RunError(f"{path}: cut short at {len(self._map):,} bytes; copy it again")

    @property
    def keys(self) -> tuple[str, ...]:
        """Names what the shard holds."""
        return tuple(self._entries)

    def read(self, key: str) -> StoredTensor | None:
        """Gives an entry, its bytes a view of the file; None when the shard does not hold it."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        begin, end = entry["data_offsets"]
        data = np.frombuffer(self._map, np.uint8, end - begin, self._start + begin)
        if key in self._metadata:
            true = json.loads(self._metadata[key])
            return StoredTensor(key, true["dtype"], tuple(true["shape"]), data)
        return StoredTensor(key, _FORMATS[entry["dtype"]], tuple(entry["shape"]), data)
