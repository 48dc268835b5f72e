"""Watches the batches of one rank on their way to the disk, in the writer's thread, and raises alerts.

Nothing in here is on the training's path, and whatever fails is an event: a rule that raises is asked no more.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.alerts.grouping import Grouping
from msprobe.core.alerts.history import MOST_SITES, History, limits_of
from msprobe.core.alerts.rules import find_object, find_rule
from msprobe.core.alerts.view import SCALER_SKIP, Catalogue, StepView, has_statistics, rows_of
from msprobe.core.errors import ConfigError
from msprobe.core.run.batch import Event
from msprobe.core.scalars import KIND as SCALAR

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.alerts.findings import Alert, Finding
    from msprobe.core.options import RecordOptions
    from msprobe.core.protocols import AlertRule
    from msprobe.core.run.batch import Batch, Fact

Hearer = Callable[["Alert"], object]


class Watcher:
    """Asks every rule about every complete step.

    ``heard`` is called with each alert, in the writer's thread; so are the functions of ``options.on_alert``.

    Raises:
        ConfigError: A rule or a function of the options cannot be found.
    """

    def __init__(self, options: RecordOptions, rank: int, heard: Sequence[Hearer] = ()) -> None:
        self.rank = rank
        self._rules: list[AlertRule] = [find_rule(asked) for asked in options.alerts]
        called = [find_object(f) if isinstance(f, str) else f for f in options.on_alert]
        self._hearers: list[Hearer] = [_say, *heard, *called]
        self._catalogue = Catalogue()
        self._history = History()
        self._grouping = Grouping()
        self._parts: list[Mapping[str, NDArray[Any]]] = []
        self._facts: list[Fact] = []
        self._is_update: NDArray[np.bool_] = np.empty(0, bool)
        self._limits: NDArray[Any] = np.empty((0, 2))
        self._rate = 1.0
        self._full = False

    def take(self, batch: Batch) -> list[Event]:
        """Looks at a batch; gives alerts, and what failed, as events."""
        self._catalogue.take(batch)
        self._facts.extend(fact for fact in batch.facts if fact.node < 0 and fact.kind == SCALAR)
        if has_statistics(batch.records):
            self._parts.append(batch.records)
        if not batch.complete:
            return []
        parts, facts, self._parts, self._facts = self._parts, self._facts, [], []
        if not parts:
            self._facts = facts[-64:]
            return []
        return self._evaluate(batch.step, parts, facts)

    def close(self) -> list[Event]:
        """Says at the end what was not told again."""
        return [Event("alert_summary", message, -1) for message in self._grouping.closing()]

    def _evaluate(self, step: int, parts: Sequence[Mapping[str, NDArray[Any]]], facts: Sequence[Fact]) -> list[Event]:
        events: list[Event] = []
        rows = rows_of(parts, self._catalogue)
        if len(rows["site"]) and int(rows["site"].max()) >= MOST_SITES:
            rows = {name: column[rows["site"] < MOST_SITES] for name, column in rows.items()}
            if not self._full:
                self._full = True
                events.append(Event("gap", f"alerts follow the first {MOST_SITES:,} sites only", step))
        scale = self._scale(rows["site"], facts)
        past = self._history.judge(rows["site"], rows, scale, self._limits[rows["site"]])
        skips = [fact.micro_step for fact in facts if fact.name == SCALER_SKIP and fact.step == step]
        view = StepView(
            step,
            self.rank,
            rows,
            self._catalogue,
            {fact.name: float(fact.value) for fact in facts},
            {fact.name: fact.step for fact in facts},
            max(skips, default=-1),
            past,
        )
        alert = self._grouping.alert(view, self._ask(view, events))
        self._history.take(rows["site"], rows, scale, past)
        if alert is not None:
            events.append(Event("alert", str(alert), step, alert.node, details=alert.as_details()))
            self._tell(alert, events)
        return events

    def _scale(self, site: NDArray[Any], facts: Sequence[Fact]) -> NDArray[Any]:
        """Gives what sizes are divided by: updates by the learning rate, which is meant to change."""
        rates = [abs(float(f.value)) for f in facts if f.name.partition(".")[0] == "lr" and f.value]
        self._rate = max(rates, default=self._rate)
        if len(self._is_update) < self._catalogue.num_sites:
            self._is_update = self._catalogue.is_update
            self._limits = limits_of(self._catalogue["direction"], self._catalogue["role"])
        return np.where(self._is_update[site], self._rate, 1.0)

    def _ask(self, view: StepView, events: list[Event]) -> list[Finding]:
        found: list[Finding] = []
        for rule in list(self._rules):
            try:
                found.extend(rule.check(view))
            except Exception as error:  # noqa: BLE001 -- rules may be the user's
                self._rules.remove(rule)
                message = f"alert rule {rule.name!r} failed and is asked no more: {type(error).__name__}: {error}"
                events.append(Event("error", message, view.step))
        return found

    def _tell(self, alert: Alert, events: list[Event]) -> None:
        for hearer in self._hearers:
            try:
                hearer(alert)
            except Exception as error:  # noqa: BLE001 -- the user's function
                name = getattr(hearer, "__name__", type(hearer).__name__)
                message = f"{name} failed on an alert: {type(error).__name__}: {error}"
                events.append(Event("error", message, alert.step))


def watcher_of(options: RecordOptions, rank: int, heard: Sequence[Hearer]) -> Watcher | Event | None:
    """Makes the watcher that options ask for; None when they ask for none, an event when they cannot be met."""
    if not options.alerts:
        return None
    try:
        return Watcher(options, rank, heard)
    except ConfigError as error:
        return Event("error", f"no alerts: {error}", options.start_step)


def _say(alert: Alert) -> None:
    """Writes a line to the console, as long as there is one."""
    with suppress(Exception):
        sys.stderr.write(f"msprobe alert: {alert}\n")
