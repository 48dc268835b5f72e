"""Turns records of a rank into cells of the index: global site, statistics in plain words, state."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from msprobe.core.trend.states import State, record_states

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.run.batch import Fact
    from msprobe.core.sites import Form

Columns = dict[str, "NDArray[Any]"]

#: The columns of a tile, with their types.
COLUMNS: Mapping[str, str] = {
    "site": "uint32", "step": "int64", "rank": "int32", "micro_step": "int32", "seq": "int64", "state": "uint8",
    "elements": "int64",
    "min": "float64", "max": "float64", "mean": "float64", "mean_abs": "float64", "std": "float64", "norm": "float64",
    "nan": "int64", "pos_inf": "int64", "neg_inf": "int64", "zero": "int64",
}  # fmt: skip


#: The seq of scalars, which have none: behind all tensors of their step.
BEHIND: Final = 2**62


@dataclass(frozen=True, slots=True)
class RankNumbers:
    """What a rank's numbers mean: global site of each site, elements of each form (complex count twice)."""

    rank: int
    sites: NDArray[np.int64]
    elements: NDArray[np.int64]

    @classmethod
    def of(cls, rank: int, sites: NDArray[np.int64], forms: Iterable[Form]) -> RankNumbers:
        """Takes the element counts from the forms."""
        counts = [math.prod(f.shape) * (2 if f.dtype.startswith("complex") else 1) for f in forms]
        return cls(rank, sites, np.array(counts, np.int64))


def cells_of(records: Mapping[str, NDArray[Any]], numbers: RankNumbers) -> Columns:
    """Gives the cells of records, whatever of their columns were recorded; what was not is NaN, or 0 for counts."""
    count = len(records["seq"])
    elements = numbers.elements[records["form"]]
    counts = {n: np.maximum(_column(records, n, count, -1), 0) for n in ("nan", "pos_inf", "neg_inf", "zero")}
    known = {"status": records["status"], "has": records["has"], **counts}
    with np.errstate(invalid="ignore", divide="ignore"):
        finite = elements - counts["nan"] - counts["pos_inf"] - counts["neg_inf"]
        std = np.sqrt(_column(records, "m2", count, np.nan) / np.where(finite > 0, finite, np.nan))
    measures = {n: _column(records, n, count, np.nan) for n in ("min", "max", "mean", "mean_abs", "norm")}
    cells = {
        "site": numbers.sites[records["site"]],
        "step": records["step"],
        "rank": np.full(count, numbers.rank),
        "micro_step": records["micro_step"],
        "seq": records["seq"],
        "state": record_states(known, elements),
        "elements": elements,
        "std": std,
        **measures,
        **counts,
    }
    return {name: np.asarray(cells[name]).astype(dtype, copy=False) for name, dtype in COLUMNS.items()}


def scalar_cells(facts: Iterable[Fact], rank: int, sites: Mapping[str, int]) -> Columns:
    """Gives run-wide scalars (loss, learning rate, gradient norm) as cells of one element."""
    rows = [(sites[f.name], f.step, f.micro_step, float(f.value)) for f in facts]
    columns = np.array(rows, np.float64).reshape(-1, 4)
    value = columns[:, 3]
    finite = np.isfinite(value)
    state = np.where(value == 0, State.ZERO, State.PRESENT)
    for found, code in (
        (value == -np.inf, State.NEG_INF),
        (value == np.inf, State.POS_INF),
        (np.isnan(value), State.NAN),
    ):
        state = np.where(found, code, state)
    plain = np.where(finite, value, np.nan)
    cells = {
        "site": columns[:, 0], "step": columns[:, 1], "micro_step": columns[:, 2], "rank": np.full(len(value), rank),
        "seq": np.full(len(value), BEHIND),
        "state": state, "elements": np.ones(len(value)), "min": plain, "max": plain, "mean": plain,
        "mean_abs": np.abs(plain), "std": np.where(finite, 0.0, np.nan), "norm": np.abs(plain),
        "nan": np.isnan(value), "pos_inf": value == np.inf, "neg_inf": value == -np.inf, "zero": value == 0,
    }  # fmt: skip
    return {name: np.asarray(cells[name]).astype(dtype) for name, dtype in COLUMNS.items()}


def is_scalar(fact: Fact) -> bool:
    """Tells whether a fact is a run-wide number over time."""
    number = isinstance(fact.value, int | float) and not isinstance(fact.value, bool)
    return fact.node < 0 and fact.kind == "scalar" and number


def _column(records: Mapping[str, NDArray[Any]], name: str, count: int, missing: float) -> NDArray[Any]:
    column = records.get(name)
    return np.full(count, missing) if column is None else column


def joined(parts: list[Columns]) -> Columns:
    """Puts parts of cells one after the other."""
    if not parts:
        return {name: np.zeros(0, dtype) for name, dtype in COLUMNS.items()}
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
