"""Options that say how a run was spread over ranks, for runs that did not record it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msprobe.cli.parsing import Parser

#: Axes that have an option, and what each is.
_AXES = {
    "tp": "tensor parallel ranks",
    "pp": "pipeline ranks",
    "vpp": "chunks of the model on each pipeline rank",
    "dp": "data parallel ranks; else what the other axes leave",
    "cp": "context parallel ranks",
    "ep": "expert parallel ranks, among the data parallel ones",
}


def add_mesh_options(made: Parser, *, sides: bool) -> None:
    """Adds --tp, --pp, --vpp, --dp, --cp, --ep and --order; with ``sides`` a size may be given for each side."""
    group = made.add_argument_group("how the work was spread over ranks (only for runs that did not record it)")
    for axis, meaning in _AXES.items():
        group.add_argument(f"--{axis}", metavar="N[/M]" if sides else "N", help=meaning)
    group.add_argument("--order", default="", metavar="AXES", help="how ranks count, fastest first: tp-cp-ep-dp-pp")


def mesh_sizes(arguments: argparse.Namespace) -> dict[str, str]:
    """Gives the sizes that were given, by axis."""
    return {axis: value for axis in _AXES if (value := getattr(arguments, axis)) is not None}
