"""Numbers of a step (loss, learning rate, gradient norm): facts of kind "scalar" about the run, one for each step.

Unlike other facts they are written each time, also when they have not changed, so that every step that was recorded has
its point. A number that lies on a device is measured like any tensor, and known when the step is collected.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from msprobe.core.run.batch import Fact

KIND = "scalar"
Columns = Mapping[str, NDArray[Any]]


class ScalarLog:
    """Scalars that are not yet written. ``node`` is always that of the run (-1)."""

    def __init__(self) -> None:
        self._known: list[Fact] = []
        #: Step, micro-step and name of numbers by slot of the reducer.
        self._slots: list[tuple[int, int, str, int]] = []
        self._norms: dict[str, list[int]] = {}
        self._sums: dict[str, Columns] = {}

    @property
    def waits(self) -> bool:
        """Tells whether a number waits for the reducer."""
        return bool(self._slots)

    def add(self, name: str, value: float, *, at: tuple[int, int]) -> None:
        """Takes a number seen at (step, micro-step)."""
        self._known.append(Fact(*at, -1, KIND, name, value))

    def add_slot(self, name: str, slot: int, *, at: tuple[int, int]) -> None:
        """Takes a number that the reducer measures, as a tensor of one element."""
        self._slots.append((*at, name, slot))

    def norm_of(self, name: str, seq: int) -> None:
        """Counts a record into the norm ``name`` of the step: the root of the sum of squares of the records' norms."""
        self._norms.setdefault(name, []).append(seq)

    def collect(self, measured: Columns | None, records: Columns) -> None:
        """Takes what the reducer measured, and the norms of the records that are written now."""
        for step, micro_step, name, slot in self._slots:
            value = math.nan if measured is None else number(measured, slot)
            self._known.append(Fact(step, micro_step, -1, KIND, name, value))
        self._slots = []
        for name, seqs in self._norms.items():
            self._sum(name, seqs, records)
            seqs.clear()

    def take(self, at: tuple[int, int], *, complete: bool) -> list[Fact]:
        """Gives the scalars that are known; norms when the step is complete, which ``at`` names."""
        if complete:
            for name, sums in self._sums.items():
                self._known.append(Fact(*at, -1, KIND, name, _norm(sums)))
            self._sums, self._norms = {}, {}
        known, self._known = self._known, []
        return known

    def _sum(self, name: str, seqs: Sequence[int], records: Columns) -> None:
        if not seqs or "norm" not in records:
            return
        rows = np.asarray(seqs) - int(records["seq"][0])
        parts = {column: records[column][rows] for column in ("norm", "nan", "pos_inf", "neg_inf")}
        so_far = self._sums.get(name)
        self._sums[name] = parts if so_far is None else {c: np.append(so_far[c], p) for c, p in parts.items()}


def number(measured: Columns, row: int) -> float:
    """Gives the only element of a measured tensor of one element, non-finite ones too."""
    for column, value in (("nan", math.nan), ("pos_inf", math.inf), ("neg_inf", -math.inf)):
        if measured[column][row]:
            return value
    return float(measured["mean"][row])


def _norm(sums: Columns) -> float:
    """Gives the root of the sum of squares, as the operators that add up whole tensors would: NaN wins over Inf."""
    if np.any(sums["nan"]):
        return math.nan
    if np.any(sums["pos_inf"]) or np.any(sums["neg_inf"]):
        return math.inf
    norms = sums["norm"]
    largest = float(np.nanmax(norms, initial=0.0))
    return largest * math.sqrt(float(np.nansum((norms / largest) ** 2))) if largest else 0.0
