"""Tables as Arrow IPC streams, through nanoarrow, from and to columns.

Encoding gives bytes and decoding takes bytes: who writes them where, and which of them to trust, is not decided here.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import nanoarrow as na
import numpy as np
from nanoarrow.c_array_stream import CArrayStream, c_array_stream
from nanoarrow.ipc import InputStream, StreamWriter
from numpy.typing import NDArray

#: A column in memory: numbers, or one text (None: null) or tuple of integers per row.
Values = NDArray[Any] | list[Any]

_ARROW_TYPES = {
    "int8": na.int8,
    "int16": na.int16,
    "int32": na.int32,
    "int64": na.int64,
    "uint8": na.uint8,
    "uint16": na.uint16,
    "uint32": na.uint32,
    "uint64": na.uint64,
    "float32": na.float32,
    "float64": na.float64,
}


@dataclass(frozen=True, slots=True)
class Field:
    """One column: ``dtype`` is a NumPy dtype's name, "text", or "integers" (a list of int64 per row).

    A ``width`` makes it a list of that many numbers per row.
    """

    name: str
    dtype: str
    width: int = 0
    nullable: bool = False

    def arrow_type(self) -> Any:
        """Gives the nanoarrow type."""
        if self.dtype == "text":
            return na.string(nullable=self.nullable)
        if self.dtype == "integers":
            return na.list_(na.int64(nullable=False), nullable=False)
        number = _ARROW_TYPES[self.dtype](nullable=False)
        return na.fixed_size_list(number, self.width, nullable=False) if self.width else number


class Encoder:
    """Turns columns into messages of one stream."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._fields = tuple(fields)
        self._schema = na.c_schema(na.struct({f.name: f.arrow_type() for f in fields}, nullable=False))
        self._sink = io.BytesIO()
        self._writer = StreamWriter.from_writable(self._sink)
        self._writer.write_stream(CArrayStream.from_c_arrays([], self._schema))
        #: What the stream starts with.
        self.header = self._taken()

    def encode(self, columns: Mapping[str, Values], length: int) -> bytes:
        """Gives the message of one record batch."""
        children = [_encode_column(f, columns[f.name], length) for f in self._fields]
        batch = na.c_array_from_buffers(self._schema, length, [None], children=children)
        self._writer.write_array(batch, write_schema=False)
        return self._taken()

    def _taken(self) -> bytes:
        data = self._sink.getvalue()
        self._sink.seek(0)
        self._sink.truncate()
        return data


def _encode_column(field: Field, values: Values, length: int) -> Any:
    if field.dtype == "text":
        return _encode_text(field, values)
    if field.dtype == "integers":
        return _encode_integers(field, values)
    numbers = np.ascontiguousarray(values, dtype=field.dtype)
    if numbers.shape != ((length, field.width) if field.width else (length,)):
        raise ValueError(f"column {field.name!r} has shape {numbers.shape} in a batch of {length} rows")
    if not field.width:
        return na.c_array_from_buffers(field.arrow_type(), length, [None, numbers])
    item = _ARROW_TYPES[field.dtype](nullable=False)
    child = na.c_array_from_buffers(item, length * field.width, [None, numbers.reshape(-1)])
    return na.c_array_from_buffers(field.arrow_type(), length, [None], children=[child])


def _encode_text(field: Field, values: Values) -> Any:
    encoded = [b"" if v is None else v.encode("utf-8", "backslashreplace") for v in values]
    offsets = _offsets([len(e) for e in encoded])
    valid = None
    if field.nullable:
        valid = np.packbits(np.array([v is not None for v in values], bool), bitorder="little")
    return na.c_array_from_buffers(field.arrow_type(), len(encoded), [valid, offsets, b"".join(encoded)])


def _encode_integers(field: Field, values: Values) -> Any:
    flat = np.array([i for row in values for i in row], dtype=np.int64)
    child = na.c_array_from_buffers(na.int64(nullable=False), len(flat), [None, flat])
    offsets = _offsets([len(row) for row in values])
    return na.c_array_from_buffers(field.arrow_type(), len(values), [None, offsets], children=[child])


def _offsets(lengths: list[int]) -> NDArray[np.int32]:
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def decode(data: bytes, fields: Sequence[Field]) -> dict[str, Values]:
    """Gives the columns that the stream holds among ``fields``, all of its batches joined.

    Raises:
        ValueError: These bytes are not a whole Arrow stream.
    """
    try:
        with c_array_stream(InputStream.from_readable(data)) as stream:
            schema = stream.get_schema()
            names = [schema.child(i).name for i in range(schema.n_children)]
            batches = list(stream)
    except (OSError, RuntimeError) as error:
        raise ValueError(f"no valid Arrow stream: {error}") from error
    wanted = {f.name: f for f in fields}
    # Buffers of a view are only valid while its batch lives; so ``batches`` does, and every column is a copy.
    views = [batch.view() for batch in batches]
    return {
        name: _decode_column(wanted[name], [(view.child(i), view.length) for view in views])
        for i, name in enumerate(names)
        if name in wanted
    }


def _decode_column(field: Field, parts: list[tuple[Any, int]]) -> Values:
    if field.dtype == "text":
        return [text for part, length in parts for text in _decode_text(part, length)]
    if field.dtype == "integers":
        return [row for part, length in parts for row in _decode_integers(part, length)]
    chunks: list[NDArray[Any]]
    if field.width:
        chunks = [np.asarray(part.child(0).buffer(1)).reshape(length, field.width) for part, length in parts]
        shape: tuple[int, ...] = (0, field.width)
    else:
        chunks = [np.asarray(part.buffer(1))[:length] for part, length in parts]
        shape = (0,)
    return np.concatenate([np.empty(shape, field.dtype), *chunks]).astype(field.dtype, copy=False)


def _decode_text(part: Any, length: int) -> Iterator[str | None]:
    offsets = np.asarray(part.buffer(1))[: length + 1].tolist()
    data = bytes(part.buffer(2))
    if data.isascii():
        text = data.decode("ascii")
        values: list[Any] = [text[a:b] for a, b in pairwise(offsets)]
    else:
        values = [data[a:b].decode() for a, b in pairwise(offsets)]
    if part.null_count:
        valid = np.unpackbits(np.asarray(part.buffer(0)).view(np.uint8), count=length, bitorder="little")
        values = [v if ok else None for v, ok in zip(values, valid.tolist(), strict=True)]
    return iter(values)


def _decode_integers(part: Any, length: int) -> Iterator[tuple[int, ...]]:
    offsets = np.asarray(part.buffer(1))[: length + 1].tolist()
    flat = np.asarray(part.child(0).buffer(1)).tolist()
    return iter([tuple(flat[a:b]) for a, b in pairwise(offsets)])
