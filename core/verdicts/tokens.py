"""Compare activations whose sides lay out tokens differently: token by token, by sample and position.

Saved tensors are brought to one order and measured as they are. Row statistics hold a norm and two projections for each
token: the squares of the projections' differences estimate the squared error, summed over tokens. Statistics of a whole
tensor include padding on one side and none on the other, and say nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.comparison import Finding
from msprobe.core.matching.tokens import TokenOrder, token_orders
from msprobe.core.measures import pair_measures
from msprobe.core.sites import Direction, Role

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.matching.views import RankView
    from msprobe.core.verdicts.errors import Errors
    from msprobe.core.verdicts.table import PairTable, RankMatch

TENSOR, ROWS = "tensor", "rows"

#: Least share of the tokens of either side that must be on both.
LEAST_SHARE = 0.9

_PROJECTIONS = ("projection_0", "projection_1")


@dataclass
class TokenAlignment:
    """Which pairs were compared token by token, and how many tokens these have in common and in all."""

    rows: NDArray[np.bool_]
    common: int = 0
    tokens: int = 0

    @property
    def share(self) -> float:
        """Gives the share of tokens that could be aligned; NaN where nothing had to be."""
        return self.common / self.tokens if self.tokens else float("nan")


def align_tokens(table: PairTable, open_: NDArray[np.bool_], errors: Errors) -> TokenAlignment:
    """Settles the pairs whose sides hold tokens in different orders; of others it changes nothing."""
    found = TokenAlignment(np.zeros(len(table), dtype=bool))
    passing = open_ & table.is_role(Role.INPUT, Role.OUTPUT) & ~table.is_direction(Direction.UPDATE)
    for match in table.matches:
        orders = token_orders(match.candidate), token_orders(match.reference)
        places = {p for p in orders[0].keys() & orders[1].keys() if _differ(orders[0][p], orders[1][p])}
        if not places:
            continue
        for row in np.flatnonzero(passing & (table.rank == match.rank)).tolist():
            place = (int(table.step[row]), int(table.micro_step[row]))
            counts = None
            if place in places:
                counts = _settle(table, row, (orders[0][place], orders[1][place]), match, errors)
            if counts is not None:
                found.rows[row] = True
                found.common, found.tokens = found.common + counts[0], found.tokens + counts[1]
    return found


def _differ(candidate: TokenOrder, reference: TokenOrder) -> bool:
    """Tells whether tokens must be aligned; two plain batches of other shapes are two batches, not two layouts."""
    return (candidate.is_told or reference.is_told) and not candidate.equals(reference)


def layout_findings(table: PairTable, declared: tuple[str, str]) -> list[Finding]:
    """Says where a mapping calls tokens padded or packed and the recorded inputs do not."""
    found = []
    for position, (name, layout) in enumerate(zip(("candidate", "reference"), declared, strict=True)):
        orders = [
            order
            for match in table.matches
            for order in token_orders((match.candidate, match.reference)[position]).values()
        ]
        if layout and not orders:
            text = f"The mapping calls the tokens of the {name} {layout}, but nothing recorded tells where they stand"
            found.append(Finding("tokens", f"{text}: msprobe.save(cu_seqlens, 'tokens.cu_seqlens')."))
        elif layout and {"packed" if len(order.shape) == 1 else "padded" for order in orders} != {layout}:
            found.append(Finding("tokens", f"The mapping calls the tokens of the {name} {layout}; they are not."))
    return found


@dataclass(frozen=True, slots=True)
class _Case:
    """One pair: its row of the table, and for each side rank, record, order, and places of the common tokens."""

    row: int
    runs: tuple[RankView, RankView]
    records: tuple[int, int]
    orders: tuple[TokenOrder, TokenOrder]
    places: tuple[NDArray[np.int64], ...]
    rest: tuple[int, ...]


def _settle(
    table: PairTable, row: int, orders: tuple[TokenOrder, TokenOrder], match: RankMatch, errors: Errors
) -> tuple[int, int] | None:
    """Compares one pair by tokens; gives how many are common and in all, None where its rows are no tokens."""
    sides = (table.candidate, table.reference)
    rests = [order.rest(_shape(str(side.shape[row]))) for order, side in zip(orders, sides, strict=True)]
    if rests[0] is None or rests[0] != rests[1]:
        return None
    errors.difference[row], errors.kind[row], errors.reason[row] = np.nan, "", ""
    errors.identical[row] = errors.nonfinite[row] = errors.equal[row] = False
    keys = [order.keys[order.keys >= 0] for order in orders]
    common, *found = np.intersect1d(keys[0], keys[1], return_indices=True)
    tokens = max(int((order.keys >= 0).sum()) for order in orders)
    places = tuple(np.flatnonzero(order.keys >= 0)[at] for order, at in zip(orders, found, strict=True))
    runs = (match.candidate, match.reference)
    records = (int(sides[0].row[row]), int(sides[1].row[row]))
    case = _Case(row, runs, records, orders, places, rests[0])
    if len(common) < LEAST_SHARE * tokens:
        errors.reason[row] = f"only {len(common)} of {tokens} tokens are on both sides"
    elif not (_by_tensors(table, case, errors) or _by_rows(table, case, errors)):
        errors.reason[row] = (
            "the sides lay out tokens differently, and statistics of whole tensors cannot be aligned: "
            "record rows or tensors"
        )
    return len(common), tokens


def _by_tensors(table: PairTable, case: _Case, errors: Errors) -> bool:
    values = [run.tensor(record) for run, record in zip(case.runs, case.records, strict=True)]
    tokens = [
        np.ascontiguousarray(held.reshape(len(order.keys), *case.rest)[at])
        for held, order, at in zip(values, case.orders, case.places, strict=True)
        if held is not None
    ]
    if len(tokens) < 2:
        return False
    row, measured = case.row, pair_measures(*tokens)
    errors.difference[row], errors.kind[row] = measured.l2_difference, TENSOR
    errors.equal[row] = measured.equal and table.candidate.dtype[row] == table.reference.dtype[row]
    errors.identical[row] = measured.l2_difference == 0 and not measured.nonfinite_differs
    errors.nonfinite[row] = measured.nonfinite_differs
    table.norm[row] = measured.l2_reference
    return True


def _by_rows(table: PairTable, case: _Case, errors: Errors) -> bool:
    held = [run.row_statistics(record) for run, record in zip(case.runs, case.records, strict=True)]
    rows = [
        {name: column[at] for name, column in columns.items()}
        for columns, order, at in zip(held, case.orders, case.places, strict=True)
        if columns is not None and len(columns["norm"]) == len(order.keys)
    ]
    if len(rows) < 2:
        return False
    (x, y), row = rows, case.row
    errors.nonfinite[row] = bool((x["nonfinite"] != y["nonfinite"]).any())
    squared = np.mean([np.square(x[name] - y[name]) for name in _PROJECTIONS], axis=0)
    lower = np.square(x["norm"] - y["norm"])
    errors.difference[row] = float(np.sqrt(np.fmax(squared, lower).sum()))
    errors.kind[row] = ROWS
    errors.identical[row] = errors.difference[row] == 0 and not errors.nonfinite[row]
    table.norm[row] = float(np.sqrt(np.square(y["norm"]).sum()))
    return True


def _shape(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split("x"))) if text else ()
