"""The command line: one module for each command, imported when it is called.

``--help`` imports no framework, no NumPy and no DuckDB, so that it answers at once.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msprobe.cli.parsing import ParserExit, UsageError
from msprobe.core.errors import MsprobeError
from msprobe.core.suggestions import closest

#: Command, and what it does. Its module has the same name.
COMMANDS: dict[str, str] = {
    "record": "run a training script and record what its models compute",
    "compare": "compare two runs and name the first wrong tensor",
    "merge": "write a run of many ranks as the run of one",
    "map": "propose which module of one run is which of the other, as a mapping file",
    "view": "show two runs side by side in the browser",
    "scan": "find what is wrong in one run, without a reference",
    "info": "show what a run holds, or in what the circumstances of two runs differ",
    "events": "show alerts and what happened to a recording, also while it runs",
    "ctl": "start, stop or change a recording that runs",
    "plugins": "list adapters, comparators and visualizers, and what they lack",
    "demo": "record two small trainings, one with a bug, and find it",
}

_HELP = """\
usage: msprobe COMMAND [options]

Finds out why a large model computes wrong numbers.

commands:
{commands}

examples:
  msprobe record --out runs/a -- python train.py    # record; the script needs no change
  msprobe compare runs/a runs/b                     # which tensor is the first wrong one?
  msprobe view runs/a runs/b --open                 # look at it in the browser
  msprobe scan runs/a                               # no reference: where did the NaN come from?
  msprobe info runs/a                               # how big is it, what does it hold?
  msprobe COMMAND --help                            # options and examples of a command

options:
  -h, --help  show this help
  --version   show the version

Exit codes: 0 clean, 1 a difference that rounding does not explain, 2 bad input, 3 too little could be judged.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and gives its exit code; every mistake of the user becomes one message and a 2."""
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        with _warnings_in_one_line():
            return _run(words)
    except ParserExit as end:
        return end.code
    except (UsageError, MsprobeError) as error:
        print(f"msprobe: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("msprobe: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has gone (`msprobe ... | head`). Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141


def _run(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(help_text(), end="")
        return 0
    if words[0] == "--version":
        from msprobe import __version__

        print(f"msprobe {__version__}")
        return 0
    name, *rest = words
    if name not in COMMANDS:
        near = closest(name, COMMANDS)
        hint = f" Did you mean {near!r}?" if near else ""
        raise UsageError(f"no command {name!r}.{hint} There are: {', '.join(COMMANDS)}.")
    command = importlib.import_module(f"msprobe.cli.{name}")
    code = command.run(command.parser().read(rest))
    sys.stdout.flush()
    return int(code)


def help_text() -> str:
    """Gives the text of ``msprobe --help``."""
    return _HELP.format(commands="\n".join(f"  {name:<10}{summary}" for name, summary in COMMANDS.items()))


def command_help(name: str) -> str:
    """Gives the text of ``msprobe NAME --help``."""
    text: str = importlib.import_module(f"msprobe.cli.{name}").parser().format_help()
    return text


@contextmanager
def _warnings_in_one_line() -> Iterator[None]:
    """Shows msprobe's own warnings as one line each; those of other packages stay as they are."""
    show = warnings.showwarning

    def show_shortly(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: object = None,
        line: str | None = None,
    ) -> None:
        if category.__module__.partition(".")[0] == "msprobe":
            print(f"msprobe: warning: {message}", file=sys.stderr)
        else:
            show(message, category, filename, lineno, None, line)

    warnings.showwarning = show_shortly
    try:
        yield
    finally:
        warnings.showwarning = show
