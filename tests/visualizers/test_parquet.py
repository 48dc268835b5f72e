import time
from pathlib import Path

import duckdb
import numpy as np

from msprobe.core.comparison import PAIR_COLUMNS, Comparison
from msprobe.visualizers.parquet import Parquet


def read(content: bytes, folder: Path, query: str) -> list[tuple[object, ...]]:
    path = folder / "pairs.parquet"
    path.write_bytes(content)
    with duckdb.connect() as connection:
        return connection.execute(query.format(f"'{path}'")).fetchall()


def test_columns_and_values_come_back(introduced: Comparison, tmp_path: Path) -> None:
    content = Parquet().render(introduced)
    names = [row[0] for row in read(content, tmp_path, "DESCRIBE SELECT * FROM {}")]
    assert names == list(PAIR_COLUMNS)
    errors = [row[0] for row in read(content, tmp_path, "SELECT error FROM {}")]
    np.testing.assert_array_equal(np.array(errors, dtype=np.float64), introduced.pairs["error"])


def test_nan_stays_nan(introduced: Comparison, tmp_path: Path) -> None:
    query = "SELECT count(*) FILTER (isnan(error)), count(*) FILTER (error IS NULL) FROM {}"
    nan = int(np.isnan(introduced.pairs["error"]).sum())
    assert read(Parquet().render(introduced), tmp_path, query) == [(nan, 0)]


def test_text_of_a_stranger_comes_back_as_it_was(hostile: Comparison, tmp_path: Path) -> None:
    found = read(Parquet().render(hostile), tmp_path, "SELECT DISTINCT candidate_node FROM {}")
    assert found == [(hostile.pairs["candidate_node"][0],)]


def test_many_pairs_are_fast(many: Comparison, tmp_path: Path) -> None:
    start = time.process_time()
    content = Parquet().render(many)
    assert time.process_time() - start < 10
    assert read(content, tmp_path, "SELECT count(*) FROM {}") == [(len(many),)]
