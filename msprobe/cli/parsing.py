"""An argument parser that teaches: it suggests near misses, shows examples and never ends the process."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from msprobe.core.errors import ConfigError
from msprobe.core.options import Ranges, parse_ranges, parse_ranks
from msprobe.core.suggestions import closest

#: Help is laid out for this width whatever the terminal's, so that the documentation generated from it is stable.
_WIDTH = 100


class UsageError(Exception):
    """The words after the command make no sense to it."""


class ParserExit(Exception):  # noqa: N818  # no error: --help has been shown
    """Parsing is done and so is the command."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _Layout(argparse.RawDescriptionHelpFormatter):
    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=_WIDTH, max_help_position=30)


class Parser(argparse.ArgumentParser):
    """A parser for one command. ``usage`` is written by hand: it must read well, not only be complete."""

    def __init__(self, command: str, *, usage: str, description: str, examples: str) -> None:
        super().__init__(
            prog=f"msprobe {command}",
            usage=f"msprobe {command} {usage}",
            description=description,
            epilog=f"examples:\n{examples}",
            formatter_class=_Layout,
            allow_abbrev=False,
        )

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Parses the words; an unknown option is answered with the nearest known one."""
        found, strangers = self.parse_known_args(words)
        if strangers:
            self._refuse(next((word for word in strangers if word.startswith("-")), strangers[0]))
        return found

    def _refuse(self, stranger: str) -> NoReturn:
        if not stranger.startswith("-"):
            self.error(f"unexpected argument {stranger!r}")
        option = stranger.partition("=")[0]
        near = closest(option, self._option_string_actions)
        self.error(f"unknown option {option!r}" + (f"; did you mean {near!r}?" if near else ""))

    def error(self, message: str) -> NoReturn:
        """Turns argparse's complaint into ours."""
        end = "" if message.endswith((".", "?")) else "."
        raise UsageError(f"{message}{end} See `{self.prog} --help`.")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Ends parsing without ending the process."""
        if message:
            print(message, end="", file=sys.stderr)
        raise ParserExit(status)


def comma_words(text: str) -> list[str]:
    """Reads ``a,b,c``."""
    return [word.strip() for word in text.split(",") if word.strip()]


def share(text: str) -> float:
    """Reads a share between 0 and 1, also as ``95%``."""
    value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 1")
    return value


def natural(text: str) -> int:
    """Reads a whole number from 0 up."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 up")
    return int(text)


def folder(text: str) -> Path:
    """Reads the name of a folder; the empty text, as an unset shell variable leaves it, would be the current one."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the name is empty; write '.' for the current folder")
    return Path(text)


def steps(text: str) -> Ranges:
    """Reads ``0,5,10-20,100-``."""
    try:
        return parse_ranges(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def ranks(text: str) -> frozenset[int]:
    """Reads ``0,8-15``."""
    try:
        return parse_ranks(text)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
