"""``msprobe plugins``: lists what there is, where it comes from, and what it lacks."""

from __future__ import annotations

import argparse

from msprobe.cli.layout import aligned
from msprobe.cli.parsing import Parser
from msprobe.plugins import KINDS, PluginTable, plugin_table

_EXAMPLES = """\
  msprobe plugins                     # all of them
  msprobe plugins --kind comparators  # one kind
  MSPROBE_PLUGINS=mine msprobe plugins  # of other packages, only the one whose entry point is called "mine"
"""


def parser() -> Parser:
    """Gives the command's parser."""
    made = Parser(
        "plugins",
        usage="[--kind KIND]",
        description="List adapters, comparators and visualizers: built in, and of other packages that are installed.\n"
        "No framework is imported for it.",
        examples=_EXAMPLES,
    )
    made.add_argument("--kind", choices=KINDS, help="only this kind: %(choices)s", metavar="KIND")
    return made


def run(arguments: argparse.Namespace) -> int:
    """Prints the table; plugins that could not be loaded come last, each with its reason."""
    print(plugins_text(plugin_table(), (arguments.kind,) if arguments.kind else KINDS))
    return 0


def plugins_text(table: PluginTable, kinds: tuple[str, ...] = KINDS) -> str:
    """Words the table as aligned text."""
    rows: list[tuple[str, ...]] = [("KIND", "NAME", "ORIGIN", "STATE", "WHAT")]
    for kind in kinds:
        rows += [(kind[:-1], p.name, p.origin, p.state, p.summary) for p in table.of_kind(kind)]
    lines = aligned(rows)
    lines += [f"broken: {b.name} of {b.origin}: {b.reason}" for b in table.broken]
    return "\n".join(lines)
