"""``msprobe demo``: two small trainings, one with a bug, and the verdict that finds it."""

from __future__ import annotations

import argparse
from pathlib import Path

from msprobe.cli.parsing import Parser

_EXAMPLES = """\
  msprobe demo                  # writes runs and comparisons to ./msprobe-demo
  msprobe demo --out /tmp/demo
"""


def parser() -> Parser:
    """Gives the command's parser."""
    made = Parser(
        "demo",
        usage="[--out DIR]",
        description="Record two trainings of a small transformer, one of them with a bug that happened in the real\n"
        "world, and let the comparison name the module. Then compare two that differ in rounding only.\n"
        "Needs torch and transformers: pip install 'msprobe[demo]'.",
        examples=_EXAMPLES,
    )
    made.add_argument(
        "--out", type=Path, default=Path("msprobe-demo"), metavar="DIR", help="where to write (%(default)s)"
    )
    return made


def run(arguments: argparse.Namespace) -> int:
    """Runs the demo, which tells its story on the terminal."""
    from msprobe import demo

    return int(demo.run(arguments.out))
