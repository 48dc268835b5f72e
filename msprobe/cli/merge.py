"""``msprobe merge``: writes a run of many ranks as the run of one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

from msprobe.cli.parallel import add_mesh_options, mesh_sizes
from msprobe.cli.parsing import Parser, folder

_DESCRIPTION = """\
Write a run of many ranks as a run of one: the records of all ranks become records of the whole model.
Statistics, checksums and sketches of shards combine exactly, tensors are put together, replicas are
checked, layers and experts get their global numbers. What cannot be known is marked so, with the reason.

`msprobe compare` does the same by itself where the two sides have different meshes; writing the merged
run pays where it is looked at or compared often, or sent to somebody."""

_EXAMPLES = """\
  msprobe merge runs/tp8 --out runs/whole
  msprobe merge runs/megatron --out runs/whole --tp 4 --pp 2 --order tp-dp-pp   # it did not record its mesh
  msprobe compare runs/whole runs/single
"""


def parser() -> Parser:
    """Gives the command's parser."""
    made = Parser("merge", usage="RUN --out DIR [options]", description=_DESCRIPTION, examples=_EXAMPLES)
    made.add_argument("run", type=Path, metavar="RUN", help="the run of many ranks")
    made.add_argument("--out", type=folder, required=True, metavar="DIR", help="a new directory for the merged run")
    made.add_argument("--no-progress", action="store_true", help="show no progress bar (only terminals get one)")
    add_mesh_options(made, sides=False)
    return made


def run(arguments: argparse.Namespace) -> int:
    """Merges, writes, and says what was found on the way."""
    from msprobe.comparing import merge
    from msprobe.core.merging.sides import check_ranks
    from msprobe.core.merging.writing import write_merged
    from msprobe.core.verdicts.constants import Constants

    merged = merge(arguments.run, parallel=mesh_sizes(arguments), order=arguments.order)
    source = merged.source
    show = not arguments.no_progress and sys.stderr.isatty()
    count = write_merged(merged, arguments.out, _Bar("writing", "step", show=show))
    unknown = merged.merged.reasons
    print(f"{arguments.out}: {len(source.ranks)} ranks as one, {count:,} records of {source.num_records:,}")
    for reason in sorted(set(unknown.values())):
        told = sum(found == reason for found in unknown.values())
        print(f"  {told:,} records: {reason}")
    for finding in check_ranks("run", merged, Constants(), _Bar("checking", "tensor", show=show)):
        print(f"  {finding.text}")
    return 0


class _Bar:
    """A progress bar on standard error, where there is a terminal."""

    def __init__(self, what: str, unit: str, *, show: bool) -> None:
        self._what, self._unit, self._show = what, unit, show

    def __call__(self, items: Iterable[int]) -> Iterable[int]:
        if not self._show:
            return items
        from tqdm import tqdm

        return tqdm(items, desc=self._what, unit=self._unit, leave=False, delay=0.5)
