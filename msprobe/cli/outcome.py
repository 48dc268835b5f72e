"""Says on standard error when a recording holds less than was asked for; the program's exit code stays its own."""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from msprobe.core.errors import MsprobeError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from msprobe.core.options import RecordOptions
    from msprobe.core.run.reader import Run

#: Exit codes from here on name the signal that ended a program: 130 for Ctrl-C, 143 for a job that was ended.
_SIGNALLED = 128

#: Options that can leave out every tensor, as the command line calls them.
_NARROWING = ("targets", "exclude", "steps", "every", "ranks", "start_step")


def warn_of_nothing(out: Path, options: RecordOptions, code: int) -> None:
    """Warns of a run without a record, and of each pattern of ``targets`` that no recorded node fits."""
    for text in _warnings(out, options, code):
        print(f"msprobe: warning: {text}", file=sys.stderr)


def _warnings(out: Path, options: RecordOptions, code: int) -> Iterator[str]:
    if not (out / "run.json").is_file():  # the launcher has said so
        if code > _SIGNALLED:
            yield f"the program was ended by signal {code - _SIGNALLED}; it may not have come to its first model."
        return
    from msprobe.core.run.reader import open_run

    try:
        yield from _of_run(open_run(out), options)
    except MsprobeError as error:
        yield f"the run cannot be read: {error}"


def _of_run(run: Run, options: RecordOptions) -> Iterator[str]:
    if not run.num_records:
        yield f"{run.path} holds no record: {_why(options)}."
        return
    if not options.targets:
        return
    names: set[str] = set()
    for rank in map(run.rank, run.ranks):
        for number in set(rank.sites.node.tolist()):
            names |= {rank.nodes[number].path, rank.nodes[number].class_name}
    for pattern in options.targets:
        if not any(fnmatchcase(name, pattern) for name in names):
            yield f"--targets {pattern!r} fits no recorded node's path or class."


def _why(options: RecordOptions) -> str:
    plain = type(options)()
    chosen = [name for name in _NARROWING if getattr(options, name) != getattr(plain, name)]
    if not chosen:
        return "the program ended before a recorded step did"
    flags = ", ".join("--" + name.replace("_", "-") for name in chosen)
    return f"nothing that the program computed fits {flags}"
