"""Which steps and ranks a recording wants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msprobe.core.options import RecordOptions


@dataclass(frozen=True, slots=True)
class Schedule:
    """Wants a step that lies in a range, is among the first ``window`` of each ``every``, on one of the ranks.

    Steps count from 0 whatever step a recording starts with, so that two runs record the same ones.

    >>> schedule = Schedule(steps=((0, 4), (100, None)), every=2)
    >>> [step for step in (0, 1, 2, 4, 101, 102) if schedule.wants(step)]
    [0, 2, 102]
    """

    #: Half-open ranges, the end None for an open one; empty: all steps.
    steps: tuple[tuple[int, int | None], ...] = ()
    every: int = 1
    window: int = 1
    #: Empty: all ranks.
    ranks: frozenset[int] = frozenset()

    @classmethod
    def of(cls, options: RecordOptions) -> Schedule:
        """Gives the schedule that the options of a recording ask for."""
        return cls(options.steps, options.every, options.window, options.ranks)

    def wants(self, step: int, rank: int | None = None) -> bool:
        """Tells whether to record a step; a rank that is not known yet (None) is taken for one that is wanted."""
        if self.ranks and rank is not None and rank not in self.ranks:
            return False
        if step % self.every >= self.window:
            return False
        return not self.steps or any(begin <= step and (end is None or step < end) for begin, end in self.steps)
