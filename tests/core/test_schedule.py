"""Which steps and ranks are recorded."""

import pytest

from msprobe.core.options import RecordOptions
from msprobe.core.schedule import Schedule


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"every": 2}, [0, 2, 4]),
        ({"steps": "1,4-"}, [1, 4, 5]),
        ({"steps": "1-4", "every": 3}, [3]),
    ],
)
def test_steps(options, wanted):
    schedule = Schedule.of(RecordOptions.create(**options))

    assert [step for step in range(6) if schedule.wants(step)] == wanted


def test_ranks():
    schedule = Schedule(ranks=frozenset({1}))

    assert [schedule.wants(0, rank) for rank in (0, 1, None)] == [False, True, True]
