import numpy as np

from msprobe.core.comparison import Comparison
from msprobe.visualizers.rows import severities, side_value, telling_rows, worst_first
from tests.visualizers.conftest import make_comparison, transformer_rows


def test_the_worst_come_first(introduced: Comparison) -> None:
    order = worst_first(introduced.pairs)
    assert sorted(order) == list(range(len(introduced)))
    assert np.all(np.diff(severities(introduced.pairs)[order]) >= 0)
    assert introduced.pairs["error"][order[1]] == np.inf


def test_telling_rows_start_with_the_sources_and_hold_a_few_of_the_quiet_verdicts(introduced: Comparison) -> None:
    rows = telling_rows(introduced, 9)
    verdicts = [str(introduced.pairs["verdict"][row]) for row in rows]
    assert rows[0] == introduced.summary.sources[0].row
    assert verdicts.count("suspect") == 2
    assert {"inherited", "inconclusive", "unmatched"} <= set(verdicts)
    assert "normal" not in verdicts


def test_the_limit_holds() -> None:
    rows = transformer_rows(8, 0)
    for row in rows[:60]:
        row["verdict"] = "introduced"
    comparison = make_comparison(rows)
    for limit in (0, 1, 2, 5, 20, 500):
        chosen = telling_rows(comparison, limit)
        assert len(chosen) <= limit
        assert len(set(chosen.tolist())) == len(chosen)


def test_an_absent_side_has_no_value_and_all_nan_has_nan(introduced: Comparison) -> None:
    pairs = introduced.pairs
    extra = int(np.flatnonzero(pairs["candidate_node"] == "model.extra")[0])
    assert side_value(pairs, extra, "reference", "min") is None
    assert side_value(pairs, extra, "candidate", "min") == -3.5
    assert np.isnan(side_value(pairs, 81, "candidate", "min") or 0.0)
