"""What a recording notes besides tensors: events, the same one counted; facts, only when they change."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from msprobe.core.run.batch import Event, Fact

_PLAIN = (str, int, float, bool, type(None))


@dataclass(slots=True)
class _Tally:
    #: Times seen since last handed over, in all, and at which total it is due again.
    fresh: int = 0
    total: int = 0
    due: int = 1


class EventLog:
    """Counts equal events. Each is handed over when first seen, then each time its count has doubled, and at the end.

    So a fault of every step costs a few lines, a killed process has lost less than half of a count, and the sum of the
    counts written is the number of times.
    """

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str, str], _Tally] = {}
        self._due: dict[tuple[str, str, str], int] = {}

    def add(self, kind: str, message: str, node: str, *, step: int) -> None:
        """Counts one event."""
        tally = self._tallies.setdefault((kind, message, node), _Tally())
        tally.fresh += 1
        tally.total += 1
        if tally.total >= tally.due:
            tally.due = 2 * tally.total
            self._due[kind, message, node] = step

    def take(self, step: int, *, everything: bool = False) -> list[Event]:
        """Gives the events that are due, or all that were not handed over yet."""
        due = dict(self._due)
        if everything:
            due |= {key: due.get(key, step) for key, tally in self._tallies.items() if tally.fresh}
        events: list[Event] = []
        for (kind, message, node), seen in due.items():
            tally = self._tallies[kind, message, node]
            events.append(Event(kind, message, seen, node, tally.fresh))
            tally.fresh = 0
        self._due.clear()
        return events


class FactLog:
    """Keeps facts that differ from the last one of the same node, kind and name."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, str, str], object] = {}
        self._facts: list[Fact] = []

    def add(self, node: int, kind: str, name: str, value: Any, *, at: tuple[int, int]) -> None:
        """Takes a fact seen at (step, micro-step)."""
        content = value if isinstance(value, _PLAIN) else _content(value)
        key = (node, kind, name)
        last = self._last.get(key, self)
        if type(last) is type(content) and (last == content or (last != last and content != content)):  # NaN is NaN
            return
        self._last[key] = content
        self._facts.append(Fact(*at, node, kind, name, value))

    def take(self) -> list[Fact]:
        """Gives the facts since the last call."""
        facts, self._facts = self._facts, []
        return facts


def _content(value: object) -> str:
    """Gives text that is equal for equal values; what cannot be described at all is equal by type."""
    try:
        return json.dumps(value, default=repr, sort_keys=True)
    except Exception:  # noqa: BLE001 -- any object of the user, with any __repr__
        return type(value).__name__
