"""Columns go through Arrow IPC unchanged, and other readers of Arrow understand them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msprobe.core.run.streams import Encoder, Field, decode

FIELDS = (
    Field("count", "int64"),
    Field("value", "float64"),
    Field("pair", "float64", width=2),
    Field("name", "text"),
    Field("parent", "text", nullable=True),
    Field("shape", "integers"),
)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
ROWS = st.lists(
    st.tuples(
        INT64, st.floats(), st.tuples(st.floats(), st.floats()), TEXT, st.none() | TEXT, st.lists(INT64).map(tuple)
    ),
    max_size=4,
)


def columns_of(rows):
    columns = list(zip(*rows, strict=True)) or [()] * len(FIELDS)
    named = dict(zip((f.name for f in FIELDS), columns, strict=True))
    numbers = {
        "count": np.array(named["count"], np.int64),
        "value": np.array(named["value"], np.float64),
        "pair": np.array(named["pair"], np.float64).reshape(-1, 2),
    }
    return {name: numbers.get(name, list(values)) for name, values in named.items()}


@settings(deadline=None, max_examples=50)
@given(st.lists(ROWS, max_size=3))
def test_batches_round_trip(batches):
    encoder = Encoder(FIELDS)
    data = encoder.header + b"".join(encoder.encode(columns_of(rows), len(rows)) for rows in batches)

    decoded = decode(data, FIELDS)

    expected = columns_of([row for rows in batches for row in rows])
    for name in ("name", "parent", "shape"):
        assert decoded[name] == expected[name]
    for name in ("count", "value", "pair"):
        values = np.asarray(decoded[name])
        assert values.dtype == expected[name].dtype
        assert values.tobytes() == expected[name].tobytes()


def test_pyarrow_reads_the_stream():
    pyarrow = pytest.importorskip("pyarrow", exc_type=ImportError)
    encoder = Encoder(FIELDS)
    rows = [(1, np.nan, (0.5, -0.0), "a", None, (2, 3)), (-1, np.inf, (1.0, 2.0), "\xe9", "", ())]

    table = pyarrow.ipc.open_stream(encoder.header + encoder.encode(columns_of(rows), 2)).read_all()

    assert table["parent"].to_pylist() == [None, ""]
    assert table["shape"].to_pylist() == [[2, 3], []]
    assert table["name"].to_pylist() == ["a", "\xe9"]
    assert table["pair"].to_pylist()[1] == [1.0, 2.0]


def test_text_that_is_no_unicode_is_written_readably():
    encoder = Encoder((Field("name", "text"),))
    data = encoder.header + encoder.encode({"name": ["a\udc80"]}, 1)

    assert decode(data, (Field("name", "text"),)) == {"name": ["a\\udc80"]}


def test_column_of_another_length_is_refused():
    with pytest.raises(ValueError, match="'value'"):
        Encoder((Field("value", "float64"),)).encode({"value": np.zeros(3)}, 2)
