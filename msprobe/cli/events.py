"""``msprobe events``: what happened to a recording and what it was alarmed about, also while it runs."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.cli.parsing import Parser, comma_words, ranks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from msprobe.core.run.batch import Event
    from msprobe.core.run.reader import Run

_EXAMPLES = """\
  msprobe events runs/a                    # alerts, gaps, drops, changes, of all ranks, by step
  msprobe events runs/a --kind alert       # alerts only, with replicas that differ from their peers
  msprobe events runs/a --follow           # and those to come, until Ctrl-C
  msprobe events runs/a --json             # one line of JSON each
"""
_INTERVAL = 1.0


def parser() -> Parser:
    """Gives the command's parser."""
    made = Parser(
        "events",
        usage="RUN [--kind KINDS] [--ranks RANGES] [--follow] [--json]",
        description="Show what happened to a recording: alerts, gaps, drops, changes of its options. Replicas are\n"
        "compared over ranks here, for the ranks do not talk to each other while they train.",
        examples=_EXAMPLES,
    )
    made.add_argument("run", type=Path, metavar="RUN", help="the run directory")
    made.add_argument("--kind", type=comma_words, default=[], metavar="KINDS", help="only these, such as alert,gap")
    made.add_argument("--ranks", type=ranks, default=frozenset(), metavar="RANGES", help="only these ranks: 0,8-15")
    made.add_argument("--follow", action="store_true", help="go on with events to come")
    made.add_argument("--seconds", type=float, metavar="N", help="with --follow: end after so many seconds")
    made.add_argument("--json", action="store_true", help="write each event as a line of JSON")
    return made


def run(arguments: argparse.Namespace) -> int:
    """Prints events, and those to come."""
    seen = _Seen()
    end = None if arguments.seconds is None else time.monotonic() + arguments.seconds
    while True:
        found = list(seen.fresh(arguments.run, arguments.ranks))
        wanted = [one for one in found if not arguments.kind or one[1].kind in arguments.kind]
        for rank, event in sorted(wanted, key=lambda one: (one[1].step, one[0])):
            print(_line(rank, event, as_json=arguments.json), flush=True)
        if not arguments.follow or (end is not None and time.monotonic() > end):
            break
        time.sleep(_INTERVAL)
    if not seen.any and not arguments.json:
        print("no events")
    return 0


class _Seen:
    """How many events of each rank were shown, and up to which step replicas were compared."""

    def __init__(self) -> None:
        self.any = False
        self._shown: dict[int, int] = {}
        self._replicas = 0

    def fresh(self, path: Path, wanted: frozenset[int]) -> Iterator[tuple[int, Event]]:
        """Gives rank and event of what is new."""
        from msprobe.core.run.reader import open_run

        run = open_run(path)
        for rank in run.ranks:
            if wanted and rank not in wanted:
                continue
            events = run.rank(rank).events
            for event in events[self._shown.get(rank, 0) :]:
                self.any = True
                yield rank, event
            self._shown[rank] = len(events)
        for event in self._of_replicas(run):
            self.any = True
            yield int(event.details["rank"]), event

    def _of_replicas(self, run: Run) -> Sequence[Event]:
        from msprobe.core.alerts.replicas import replica_alerts

        alerts, self._replicas = replica_alerts(run, self._replicas)
        return alerts


def _line(rank: int, event: Event, *, as_json: bool) -> str:
    if as_json:
        members: dict[str, Any] = {"rank": rank, "step": event.step, "kind": event.kind, "node": event.node}
        return json.dumps({**members, "message": event.message, "count": event.count, "details": dict(event.details)})
    times = f" ({event.count} times)" if event.count > 1 else ""
    if event.kind == "alert":
        return f"alert: {event.message}{times}"
    place = f" at {event.node}" if event.node else ""
    step = f", step {event.step}" if event.step >= 0 else ""
    return f"{event.kind}: rank {rank}{step}{place}: {event.message}{times}"
