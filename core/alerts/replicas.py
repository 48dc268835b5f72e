"""Replicas unlike their peers: found by a reader, since ranks do not talk to each other while they train.

Two kinds of peers:

* Ranks that hold the same part of a parameter, or of a reduced gradient (equal layouts), must hold the same numbers.
  They are compared from the first step at which they did: experts of equal names on other ranks never do.
* Ranks that compute the same module on other samples have outputs and gradients of one size, to a factor. With at least
  ``LEAST_RANKS``, one far outside of the others' spread is unlike them. (``core.robust`` would want more ranks: with a
  handful, its scale is widened beyond any use.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from msprobe.core.alerts.findings import Alert
from msprobe.core.alerts.grouping import QUIET_STEPS
from msprobe.core.placement import read_layout
from msprobe.core.records import HAS, Status
from msprobe.core.run.batch import Event
from msprobe.core.sites import Direction, Role

if TYPE_CHECKING:
    from msprobe.core.run.reader import RankRun, Run
    from msprobe.core.sites import Site

Array = NDArray[Any]
Key = tuple["Site", int, str]

#: Statistics of replicas may differ by so much, relatively: reductions in another order on another machine.
TOLERANCE: Final = 1e-6
#: A rank is unlike its peers from this factor on, if it lies so many median deviations out, too.
FACTOR: Final = 8.0
DEVIATIONS: Final = 12.0
LEAST_RANKS: Final = 4
_LASTING: Final = frozenset({Role.PARAMETER, Role.STATE})
_COLUMNS: Final = ("step", "micro_step", "norm", "mean_abs")


@dataclass(slots=True)
class _Rows:
    """Records of all ranks: which key, step, rank, and the numbers that are compared."""

    keys: list[Key]
    columns: dict[str, Array]


def replica_alerts(run: Run, since: int = 0) -> tuple[list[Event], int]:
    """Compares ranks over the steps from ``since`` that all of them have completed; gives alerts and the next step."""
    ranks = [run.rank(rank) for rank in run.ranks]
    ends = [max(rank.complete_steps, default=-1) for rank in ranks]
    end = min(ends) + 1
    if len(ranks) < 2 or end <= since:
        return [], since
    before = max((s for s in ranks[0].complete_steps if s < since), default=since)
    rows = _gathered(zip(run.ranks, ranks, strict=True), before, end)
    alerts: list[Alert] = []
    if len(rows.keys):
        for alert in sorted([*_unequal(rows), *_unlike(rows)], key=lambda a: a.step):
            news = not alerts or alert.step - alerts[-1].step > QUIET_STEPS
            if alert.step >= since and news:
                alerts.append(alert)
    return [Event("alert", str(a), a.step, a.node, details=a.as_details()) for a in alerts], end


def _gathered(ranks: Iterable[tuple[int, RankRun]], start: int, end: int) -> _Rows:
    numbers: dict[Key, int] = {}
    parts: list[dict[str, Array]] = []
    for number, rank in ranks:
        stream = rank.record_stream()
        which = (stream.batches[:, 1] >= start) & (stream.batches[:, 1] < end)
        for records in stream.read(which):
            usable = (records["status"] == Status.MEASURED) & ((records["has"] & HAS["statistics"]) != 0)
            pairs = np.stack([records["site"], records["form"]], axis=1)[usable]
            unique, inverse = np.unique(pairs, axis=0, return_inverse=True)
            keys = [_key(rank, int(site), int(form)) for site, form in unique]
            codes = np.array([-1 if k is None else numbers.setdefault(k, len(numbers)) for k in keys], np.int64)
            part = {name: np.asarray(records[name][usable]) for name in _COLUMNS}
            part["key"] = codes[inverse.reshape(-1)]
            part["rank"] = np.full(len(part["key"]), number)
            parts.append({name: column[part["key"] >= 0] for name, column in part.items()})
    columns = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]} if parts else {}
    return _Rows(list(numbers), columns)


def _key(rank: RankRun, site: int, form: int) -> Key | None:
    """Gives what must be equal for two ranks' records to be peers; None for what has none."""
    found, shape = rank.sites.site(site), rank.forms[form]
    kind = 1 if _must_be_equal(found) else 0
    if kind:
        layout = read_layout(shape.layout)
        if layout is not None and any(p.kind in ("partial", "unknown") for p in layout.placements):
            return None
        return found, kind, f"{shape.shape}{shape.layout}"
    return (found, kind, "") if found.role in (Role.OUTPUT, Role.GRADIENT, Role.INPUT) else None


def _must_be_equal(site: Site) -> bool:
    """Tells what replicas share: what lasts, and gradients after the reduction."""
    if site.role is Role.GRADIENT:
        return site.direction.value == "reduce"
    return site.role in _LASTING and site.direction in (Direction.UPDATE, Direction.FORWARD)


def _groups(rows: _Rows, kind: int) -> Iterable[tuple[Key, Array]]:
    """Gives the rows of each key, ordered by step, micro-step and rank."""
    of_kind = np.array([key[1] == kind for key in rows.keys], bool)
    columns = rows.columns
    chosen = np.flatnonzero(of_kind[columns["key"]])
    order = np.lexsort([columns[name][chosen] for name in ("rank", "micro_step", "step", "key")])
    chosen = chosen[order]
    breaks = np.flatnonzero(np.diff(columns["key"][chosen])) + 1
    for part in np.split(chosen, breaks):
        if len(part):
            yield rows.keys[int(columns["key"][part[0]])], part


def _unequal(rows: _Rows) -> Iterable[Alert]:
    columns = rows.columns
    for key, part in _groups(rows, 1):
        agreed = False
        for together in _steps(columns, part):
            ranks = columns["rank"][together]
            if len(np.unique(ranks)) < 2:
                continue
            apart = np.zeros(len(together), bool)
            for name in ("norm", "mean_abs"):
                values = columns[name][together]
                usual = np.median(values)
                apart |= np.abs(values - usual) > TOLERANCE * np.abs(usual)
            if agreed and apart.any():
                yield _alert(key[0], columns, together, ranks[apart], "replicas that agreed differ")
                break
            agreed = agreed or not apart.any()


def _unlike(rows: _Rows) -> Iterable[Alert]:
    columns = rows.columns
    for key, part in _groups(rows, 0):
        for together in _steps(columns, part):
            if len(together) < LEAST_RANKS:
                continue
            norms = columns["norm"][together]
            with np.errstate(divide="ignore", invalid="ignore"):
                distance = np.abs(np.log(norms / np.median(norms)))
            limit = max(np.log(FACTOR), DEVIATIONS * float(np.median(distance)))
            apart = np.isfinite(distance) & (distance > limit)
            if apart.any():
                yield _alert(key[0], columns, together, columns["rank"][together][apart], "unlike its peers in size")
                break


def _steps(columns: dict[str, Array], part: Array) -> Sequence[Array]:
    moved = (np.diff(columns["step"][part]) != 0) | (np.diff(columns["micro_step"][part]) != 0)
    return np.split(part, np.flatnonzero(moved) + 1)


def _alert(site: Site, columns: dict[str, Array], together: Array, ranks: Array, message: str) -> Alert:
    named = sorted({int(rank) for rank in ranks})
    shown = ", ".join(map(str, named[:8])) + (", ..." if len(named) > 8 else "")
    return Alert(
        "replica",
        f"{message}: rank{'s' if len(named) > 1 else ''} {shown} of {len(np.unique(columns['rank'][together]))}",
        int(columns["step"][together[0]]),
        named[0],
        int(columns["micro_step"][together[0]]),
        site.node,
        site.direction.value,
        site.role.value,
        site.argument,
        rules=("replica",),
    )
