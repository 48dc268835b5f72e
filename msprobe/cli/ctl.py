"""``msprobe ctl``: starts, stops and changes a recording that runs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msprobe.cli.parsing import Parser, UsageError, natural
from msprobe.core.errors import ConfigError

_DESCRIPTION = """\
Change a recording while its training runs. All ranks change at the same step, a little ahead of now,
without waiting for each other; a rank that is past that step already says so in the run's events.
What is wrong is refused, and the recording goes on as it was."""

_EXAMPLES = """\
  msprobe ctl runs/a stop                                   # record nothing from here on
  msprobe ctl runs/a start
  msprobe ctl runs/a set every=10 targets='*.layers.3.*'    # options as in probe.yaml
  msprobe ctl runs/a set what=statistics,tensors --at 5000  # from step 5000 on
"""
_ACTIONS = ("start", "stop", "set")


def parser() -> Parser:
    """Gives the command's parser."""
    made = Parser(
        "ctl",
        usage="RUN start|stop|set [KEY=VALUE ...] [--at STEP]",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    made.add_argument("run", type=Path, metavar="RUN", help="the run directory, as given to the recording")
    made.add_argument("action", choices=_ACTIONS, help="what to do: %(choices)s", metavar="ACTION")
    made.add_argument("changes", nargs="*", metavar="KEY=VALUE", help="options, for set")
    made.add_argument("--at", type=natural, metavar="STEP", help="the first step that it holds for")
    made.add_argument(
        "--wait", type=float, default=30.0, metavar="SECONDS", help="how long to wait for the answer (%(default)s)"
    )
    return made


def run(arguments: argparse.Namespace) -> int:
    """Makes the request and says what was agreed."""
    from msprobe.core.control import request
    from msprobe.core.run.reader import open_run

    changes = _changes(arguments.changes)
    if bool(changes) != (arguments.action == "set"):
        raise UsageError("KEY=VALUE goes with set, and set needs it. See `msprobe ctl --help`.")
    if not (arguments.run / "run.json").is_file():
        open_run(arguments.run)  # says what is wrong with it
    content: dict[str, Any] = {"options": changes, "at": arguments.at}
    if arguments.action != "set":
        content["paused"] = arguments.action == "stop"
    answer = request(arguments.run, content, seconds=arguments.wait)
    print(f"from step {answer['apply_at']} on (the training is at step {answer['step']})")
    return 0


def _changes(words: Sequence[str]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals:
            raise UsageError(f"{word!r} is no KEY=VALUE.")
        changes[name] = _readable(name, text)
    return changes


def _readable(name: str, text: str) -> Any:
    """Gives what a config file would hold: true, false or a number where the option takes it, else text."""
    from msprobe.core.options import parse_option

    for value in (_value(text), text):
        try:
            parse_option(name, value)
        except ConfigError as error:
            mistake = error
        else:
            return value
    raise UsageError(f"{name}={text}: {mistake}") from None


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if text.isdecimal() else text
