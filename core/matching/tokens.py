"""Which sample and position each row of an activation holds: padded, packed, padded on the other side.

It follows from what the model was called with: an attention mask, position ids that begin anew, the cumulative lengths
of a packed batch (``cu_seqlens``), or what the user saved under ``tokens.`` and one of these names. Without any of them
a batch of token ids holds no padding.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from msprobe.core.dtypes import is_discrete
from msprobe.core.matching.names import normalise
from msprobe.core.sites import Direction, NodeKind, Role

if TYPE_CHECKING:
    from msprobe.core.matching.views import RankView

#: Inputs of a model that tell where tokens stand; adapters save them in full where they are small.
TOKEN_INPUTS = ("attention_mask", "position_ids", "cu_seqlens", "cu_seqlens_q", "cu_seq_lens_q")
#: Tensors saved under ``tokens.`` and one of the names above say the same.
SAVED_PREFIX = "tokens."
#: Sample and position share one number.
_SAMPLE = 1 << 32

_FORWARD = tuple(Direction).index(Direction.FORWARD)
_INPUT, _SAVED = (tuple(Role).index(r) for r in (Role.INPUT, Role.SAVED))

Keys = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TokenOrder:
    """The tokens of one pass: the leading shape of activations; of each row sample and position, -1 for padding."""

    shape: tuple[int, ...]
    keys: Keys
    #: Something told it; else it is only the shape of a batch in which nothing speaks of padding.
    is_told: bool = True

    def rest(self, shape: tuple[int, ...]) -> tuple[int, ...] | None:
        """Gives the dimensions of one token in a tensor of this shape; None where its rows are no tokens."""
        for lead in (self.shape, (1, *self.shape)):
            if shape[: len(lead)] == lead:
                return shape[len(lead) :]
        return None

    def equals(self, other: TokenOrder) -> bool:
        """Tells whether both lay out the same tokens alike."""
        return self.shape == other.shape and np.array_equal(self.keys, other.keys)


def of_mask(mask: NDArray[np.generic]) -> TokenOrder | None:
    """Gives the order of a padded batch: ``mask`` is (samples, length), nonzero where there is a token."""
    if mask.ndim != 2:
        return None
    there = mask != 0
    position = np.cumsum(there, axis=1) - 1
    keys = np.where(there, np.arange(len(mask))[:, None] * _SAMPLE + position, -1)
    return TokenOrder(tuple(mask.shape), keys.reshape(-1).astype(np.int64))


def of_lengths(cumulative: NDArray[np.generic]) -> TokenOrder | None:
    """Gives the order of a packed batch from its cumulative lengths: 0, the end of sample 0, of sample 1, ..."""
    ends = cumulative.astype(np.int64).reshape(-1)
    if len(ends) < 2 or ends[0] != 0 or (np.diff(ends) < 0).any():
        return None
    rows = np.arange(ends[-1])
    sample = np.searchsorted(ends, rows, side="right") - 1
    return TokenOrder((int(ends[-1]),), sample * _SAMPLE + rows - ends[sample])


def of_positions(positions: NDArray[np.generic]) -> TokenOrder | None:
    """Gives the order of a packed batch from positions that begin at 0 with each sample; None for other positions."""
    flat = positions.astype(np.int64).reshape(-1)
    if positions.size != max(positions.shape, default=0) or not len(flat) or flat[0] != 0 or (flat == 0).sum() < 2:
        return None
    return TokenOrder((len(flat),), (np.cumsum(flat == 0) - 1) * _SAMPLE + flat)


def token_orders(run: RankView) -> dict[tuple[int, int], TokenOrder]:
    """Gives the order of tokens of each pass, by step and micro-step, where it is known."""
    sites = run.sites
    roots = {i for i, node in enumerate(run.nodes) if node.kind is NodeKind.MODULE and not normalise(node.path)}
    names: dict[int, str] = {}
    for site in np.flatnonzero((sites.direction == _FORWARD) & np.isin(sites.role, (_INPUT, _SAVED))).tolist():
        node = int(sites.node[site])
        if sites.role[site] == _SAVED:
            name = run.nodes[node].path.rpartition("/")[2]
            if name.startswith(SAVED_PREFIX):
                names[site] = name.removeprefix(SAVED_PREFIX)
        elif node in roots and sites.call[site] == 0:
            names[site] = str(sites.argument[site]).rpartition(".")[2]
    found: dict[tuple[int, int], dict[str, int]] = defaultdict(dict)
    if not names:
        return {}
    rows = np.flatnonzero(np.isin(run.records["site"], list(names)))
    for row in rows.tolist():
        place = (int(run.records["step"][row]), int(run.records["micro_step"][row]))
        found[place].setdefault(names[int(run.records["site"][row])], row)
    orders = {place: _order(run, by_name) for place, by_name in found.items()}
    return {place: order for place, order in orders.items() if order is not None}


def _order(run: RankView, rows: dict[str, int]) -> TokenOrder | None:
    for name, read in (
        *((name, of_lengths) for name in TOKEN_INPUTS[2:]),
        ("position_ids", of_positions),
        ("attention_mask", of_mask),
    ):
        values = run.tensor(rows[name]) if name in rows else None
        order = read(values) if values is not None else None
        if order is not None:
            return order
    if set(rows) & set(TOKEN_INPUTS[2:]) or "attention_mask" in rows:
        return None  # it was given, but not saved
    forms = [run.forms[int(run.records["form"][row])] for row in rows.values()]
    ids = [form.shape for form in forms if len(form.shape) == 2 and is_discrete(form.dtype)]
    whole = of_mask(np.ones(ids[0], dtype=bool)) if ids else None
    return replace(whole, is_told=False) if whole is not None else None
