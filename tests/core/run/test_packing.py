"""Records lie on disk in few bytes, and come back bit for bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msprobe.core.records import WHAT, record_columns
from msprobe.core.run.packing import Packing, distinct
from msprobe.core.run.reader import open_run
from msprobe.core.run.streams import Encoder, decode

MOST = {"step": 2**31 - 1, "seq": 2**40}


def random_records(what, length, seed):
    """Few distinct values in every column, with NaN, infinities, both zeros and the ends of each integer."""
    random = np.random.default_rng(seed)
    records = {}
    for column in record_columns(what):
        shape = (length, column.width) if column.width else (length,)
        if column.dtype == "float64":
            chosen = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 5e-324, 1 / 3])
        else:
            ends = np.iinfo(column.dtype)
            most = MOST.get(column.name, ends.max)
            chosen = np.array([0, 0, 0, 1, most, 0 if ends.min == 0 else -1], column.dtype)
        records[column.name] = random.choice(chosen, shape).astype(column.dtype)
    records["seq"] = np.arange(length, dtype=np.uint64) + np.uint64(seed)
    return records


@given(st.sets(st.sampled_from(WHAT)), st.integers(0, 40), st.integers(0, 100), st.integers(0, 10**6))
def test_any_records_come_back_bit_for_bit(what, length, seed, first_row):
    what = frozenset(what)
    packing, records = Packing(what), random_records(what, length, seed)
    tables, num_values = packing.pack(records, length, first_row)
    empty = {name: decode(Encoder(fields).header, fields) for name, fields in packing.fields.items()}
    decoded = {name: columns if rows else empty[name] for name, (columns, rows) in tables.items()}

    back = packing.unpack(decoded, records["seq"], first_row)

    assert num_values <= length
    for column in record_columns(what):
        if column.name == "tensor" and "tensors" not in what:
            continue
        values = np.asarray(back[column.name])
        assert values.dtype == column.dtype
        assert values.tobytes() == records[column.name].tobytes()


def test_equal_rows_stand_once_in_the_order_of_their_first():
    words = np.array([[7, 1], [3, 3], [7, 1], [1, 7], [3, 3]], np.uint64)
    rows, places = distinct(words)
    assert rows.tolist() == [0, 1, 3]
    assert places.tolist() == [0, 1, 0, 2, 1]


def test_rows_that_mix_into_one_word_are_told_apart():
    mix = 0x9E3779B97F4A7C15
    first = (5 * mix) % 2**64
    first ^= first >> 29
    words = np.array([[5, 0], [0, first]], np.uint64)  # the second column undoes what the first one made
    rows, places = distinct(words)
    assert (rows.tolist(), places.tolist()) == ([0, 1], [0, 1])


def test_a_number_without_room_is_refused_not_cut():
    records = {"step": np.array([2**31])}
    with pytest.raises(OverflowError, match="2147483648 do not fit into int32"):
        Packing(frozenset({"statistics"})).pack(records, 1, 0)


def test_a_record_of_statistics_takes_less_than_sixty_bytes(tmp_path, start_writer, new_batch):
    writer, rows = start_writer(tmp_path / "run", what={"statistics", "checksums"}), 1000
    writer.submit(new_batch(0))
    assert writer.flush(10)
    before = sum(file.stat().st_size for file in (tmp_path / "run").rglob("*") if file.is_file())
    batch = new_batch(1, rows=rows, catalogue=False)
    batch.records |= {name: np.zeros(rows) for name in ("nan", "pos_inf", "neg_inf", "zero")}
    batch.records["norm"] = np.arange(rows) // 1.5  # two of three contents are new
    writer.submit(batch)
    assert writer.flush(10)
    after = sum(file.stat().st_size for file in (tmp_path / "run").rglob("*") if file.is_file())

    assert (after - before) / rows < 60
    assert open_run(tmp_path / "run").rank(0).records["norm"][3:].tolist() == batch.records["norm"].tolist()
