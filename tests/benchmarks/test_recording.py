"""What the benchmark of recording works out of its turns."""

import math
from dataclasses import asdict

import numpy as np
import pytest

from benchmarks.recorders.page import page
from benchmarks.recording import LARGE, SMALL, WORK, Cost, Line, _interval

MACHINE = {"processor": "A", "cores": 2, "load": 0.1, "python": "3.11", "system": "Linux"}
SPLIT = {"measuring": 0.004, "measured": 10.0, "bytes": 2e6, "read": 0.001}


def cells(line):
    return [cell.strip() for cell in page([asdict(line)], MACHINE).splitlines()[-1].split("|")[1:-1]]


def test_interval_of_the_median_holds_it_about_nineteen_times_in_twenty():
    random = np.random.default_rng(0)
    held = 0
    for _ in range(500):
        low, high = _interval(random.lognormal(0.0, 0.02, 60).tolist())
        held += low <= 1.0 <= high
    assert held / 500 == pytest.approx(0.95, abs=0.03)


def test_a_row_tells_ratio_spread_and_where_the_time_went():
    ours = Cost([1.2, 1.1, 1.3], [1.0], 1.15, 2**20, 6000.0, 100, SPLIT | {"write": 0.002})
    peer = Cost([2.0], [1.0], 2.0, 0, 0.0, 90)
    row = cells(Line("some work", LARGE, "1.2", 0.1, {"msprobe": ours, "peer": peer}))
    assert row[:5] == ["some work", "512 x 8", "**2.00** (2.00-2.00), 2.00", "**1.20** (1.10-1.30), 1.15", "1.2"]
    assert row[5:9] == ["4.0 ms, 2 MB", "1.0 ms", "2.0 ms", "16.0 ms"]
    assert row[9:] == ["+1 (+0)", "0.01 (0.00)", "100 (90)", "60"]


def test_the_row_of_the_idle_probe_tells_the_interval():
    idle = Cost([0.999, 1.001, 1.0], interval=(0.999, 1.001))
    row = cells(Line("idle", SMALL, "1", 0.1, {"msprobe": idle}))
    assert row[3] == "**1.0000**, 95 % interval 0.9990-1.0010 (3 pairs)"
    assert len(row) == len(page([], MACHINE).splitlines()[0].split("|")) - 2


def test_each_model_has_a_must_of_its_own():
    for work in WORK:
        assert work.sizes
        assert math.isfinite(float(work.must_of(work.sizes[0]).split()[0]))
