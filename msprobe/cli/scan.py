"""``msprobe scan``: what is wrong in one run, without a reference."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe.cli.layout import aligned
from msprobe.cli.parsing import Parser, natural

if TYPE_CHECKING:
    from msprobe.core.scan.findings import Scan

_DESCRIPTION = """\
Find what is wrong in one run, with no reference to compare it with: where the first NaN or harmful infinity
arose, over all ranks, micro-steps and data flow, and why; steps out of their normal band, and whether the
forward or the backward left it first; ranks unlike their replicas; parameters that do not move; a forgotten
zero_grad; dead experts. First one sentence, then the findings with what shows them."""

_EXAMPLES = """\
  msprobe scan runs/a                     # what is wrong? one sentence, then the evidence
  msprobe scan runs/a --limit 0           # only the sentence
  msprobe scan runs/a --format json       # for programs
  msprobe scan runs/a || echo "look at runs/a"

how to read it:
  made from finite operands   the NaN arose there: look at that place
  -Inf of a mask              is no fault: it is consumed by the softmax after it
  gradient scaler             a skipped update is a note, not a finding
  no data flow recorded       order of execution is used, and the result says so

exit codes:
  0  nothing found
  1  something found
  2  bad input
  3  too little recorded to judge
"""
_WIDTH = 118


def parser() -> Parser:
    """Gives the command's parser."""
    made = Parser("scan", usage="RUN [options]", description=_DESCRIPTION, examples=_EXAMPLES)
    made.add_argument("run", type=Path, metavar="RUN", help="the run directory")
    made.add_argument("--format", choices=("text", "json"), default="text", help="text or json; default text")
    made.add_argument("--limit", type=natural, default=10, metavar="N", help="findings in full; 0: only the sentence")
    return made


def run(arguments: argparse.Namespace) -> int:
    """Scans, prints, and gives the exit code."""
    from msprobe.core.scan.scanning import scan

    found = scan(arguments.run)
    if arguments.format == "json":
        import json

        print(json.dumps(found.to_json(), indent=2))
    else:
        print("\n".join(_lines(found, arguments.limit)))
    return found.exit_code


def _lines(found: Scan, limit: int) -> Iterator[str]:
    yield from textwrap.wrap(found.sentence, _WIDTH)
    if not limit:
        return
    if found.findings:
        yield ""
        yield from _table(found, limit)
    for number, finding in enumerate(found.findings[:limit], 1):
        yield ""
        if finding.sentence != found.sentence:  # the first one is told already
            yield from _wrapped(f"{number}  {finding.sentence}", "  ", "     ")
        for line in finding.evidence:
            yield from _wrapped(f"- {line}", "     ", "       ")
    if found.notes:
        yield ""
        yield "  Notes"
        for note in found.notes:
            yield from _wrapped(f"- {note}", "  ", "    ")


def _table(found: Scan, limit: int) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [("", "KIND", "STEP", "RANK", "WHERE")]
    for number, finding in enumerate(found.findings[:limit], 1):
        step, rank = (str(at) if at >= 0 else "" for at in (finding.step, finding.rank))
        rows.append((str(number), finding.kind, step, rank, finding.site or finding.node))
    yield from ("  " + line for line in aligned(rows, right=(0, 2, 3)))
    if len(found.findings) > limit:
        yield f"  and {len(found.findings) - limit} more: --limit {len(found.findings)}"


def _wrapped(text: str, first: str, rest: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=rest)
