"""What both recordings noted of themselves: alerts of their watchers, gaps, and what was dropped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msprobe.visualizers.wording import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from msprobe.core.run.batch import Event
    from msprobe.core.verdicts.pair_records import PairRecords

KINDS = ("alert", "gap", "drop")

#: How many are listed.
_MOST_LISTED = 200


def alerts(records: PairRecords | None) -> list[dict[str, Any]]:
    """Gives the events of both sides in order of steps, equal ones of a rank once; empty where no run is open."""
    if records is None:
        return []
    found: dict[tuple[str, int, str, str, str], dict[str, Any]] = {}
    for side, rank, event in _events(records):
        key = (side, rank, event.kind, event.message, event.node)
        if key in found:
            found[key]["count"] += event.count
        else:
            found[key] = _told(side, rank, event)
    order = {kind: place for place, kind in enumerate(KINDS)}
    listed = sorted(found.values(), key=lambda each: (each["step"], order[each["kind"]], each["side"], each["rank"]))
    return listed[:_MOST_LISTED]


def _events(records: PairRecords) -> Iterator[tuple[str, int, Event]]:
    for match in records.matches:
        for side, view in (("c", match.candidate), ("r", match.reference)):
            for event in view.events:
                if event.kind in KINDS:
                    yield side, match.rank, event


def _told(side: str, rank: int, event: Event) -> dict[str, Any]:
    details = event.details
    site = " ".join(str(details[name]) for name in ("direction", "role", "argument") if details.get(name))
    return {
        "side": side,
        "kind": event.kind,
        "text": printable(str(details.get("message") or event.message)),
        "rule": printable(str(details.get("rule", ""))),
        "step": int(event.step),
        "rank": int(details.get("rank", rank)),
        "node": printable(event.node),
        "site": printable(site),
        "count": event.count,
    }
