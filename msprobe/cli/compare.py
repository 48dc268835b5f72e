"""``msprobe compare``: compares two runs, tells the story, writes the files."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe.cli.output import check_output_directory, write_outputs
from msprobe.cli.parallel import add_mesh_options, mesh_sizes
from msprobe.cli.parsing import Parser, UsageError, comma_words, folder, natural, ranks, share, steps
from msprobe.plugins import plugin_table

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison

_DESCRIPTION = """\
Compare a candidate run with a reference run and name the first tensor that differs by more than rounding.
First the story (verdict, sources, coverage), then a table of the rows worth reading."""

_EXAMPLES = """\
  msprobe compare runs/npu runs/gpu
  msprobe compare runs/npu runs/gpu --noise runs/gpu-perturbed       # floors measured, not derived
  msprobe compare runs/bf16 runs/fp32 --golden runs/fp64             # who is further from the truth?
  msprobe compare runs/a runs/b --mapping layers.yaml --out report --format table,csv,html
  msprobe compare runs/a runs/b --step 0-3 --rank 0 --comparator cosine,max_abs
  msprobe compare runs/tp8 runs/tp1                                  # each as one whole model
  msprobe compare runs/megatron runs/one --tp 4 --pp 2               # it did not record its mesh
  msprobe compare runs/a runs/b --quiet || echo "numerics changed"   # in CI

exit codes:
  0  judged as far as --min-coverage asks, and nothing introduced or suspect
  1  introduced or suspect, or non-finite on one side only
  2  bad input
  3  too little could be judged
"""


#: Files that nobody reads as text; without ``--out`` they are refused.
_NOT_READ_IN_A_TERMINAL = (".html", ".parquet", ".xlsx")


def parser() -> Parser:
    """Gives the command's parser."""
    made = Parser("compare", usage="CANDIDATE REFERENCE [options]", description=_DESCRIPTION, examples=_EXAMPLES)
    made.add_argument("candidate", type=Path, metavar="CANDIDATE", help="the run in doubt")
    made.add_argument("reference", type=Path, metavar="REFERENCE", help="the run that is trusted")
    _add_judging(made)
    _add_choosing(made)
    add_mesh_options(made, sides=True)
    _add_showing(made)
    return made


def run(arguments: argparse.Namespace) -> int:
    """Compares, shows, writes, and gives the exit code that the summary holds."""
    formats = _formats(arguments)
    if arguments.out is not None:
        check_output_directory(arguments.out)
    comparison = _compare(arguments)
    written = write_outputs(comparison, formats, arguments.out) if arguments.out is not None else []
    _show(comparison, formats, arguments)
    if written and not arguments.quiet:
        print(f"\nwritten to {arguments.out}: {', '.join(path.name for path in written)}")
    return comparison.summary.exit_code


def _compare(arguments: argparse.Namespace) -> Comparison:
    from msprobe.comparing import compare

    return compare(
        arguments.candidate,
        arguments.reference,
        noise=arguments.noise,
        golden=arguments.golden,
        mapping=arguments.mapping,
        swap=arguments.swap,
        min_coverage=arguments.min_coverage,
        comparators=arguments.comparator,
        constants=arguments.constants,
        ranks=arguments.rank,
        steps=arguments.step,
        merge=arguments.merge,
        parallel=mesh_sizes(arguments),
        order=arguments.order,
        progress=not arguments.no_progress and not arguments.quiet and sys.stderr.isatty(),
    )


def _formats(arguments: argparse.Namespace) -> list[str]:
    """Gives the visualizers asked for; all names are looked up before the work begins."""
    names: list[str] = list(dict.fromkeys(arguments.format))
    table = plugin_table()
    file_names = {name: table.get("visualizers", name).file_name for name in names}
    if arguments.out is None:
        for name, file_name in file_names.items():
            if file_name.endswith(_NOT_READ_IN_A_TERMINAL) or (file_name and len(names) > 1):
                raise UsageError(f"--format {name} writes a file: say where with --out DIR.")
    return names


def _show(comparison: Comparison, formats: list[str], arguments: argparse.Namespace) -> None:
    """Prints the sentence, the table, or the one text format that was asked for without ``--out``."""
    if arguments.quiet:
        print(comparison.summary.sentence)
        return
    for name in formats:
        visualizer = plugin_table().get("visualizers", name)
        if visualizer.file_name and arguments.out is not None:
            continue
        if arguments.limit is not None and hasattr(visualizer, "limit"):
            visualizer = replace(visualizer, limit=arguments.limit)
        text = visualizer.render(comparison)
        if isinstance(text, bytes):  # of another package; ours are refused before the work begins
            raise UsageError(f"--format {name} writes a file: say where with --out DIR.")
        print(text.rstrip("\n"))


def _add_judging(made: Parser) -> None:
    group = made.add_argument_group("judging")
    group.add_argument(
        "--noise", type=Path, metavar="RUN", help="the reference repeated, perturbed or in another precision"
    )
    group.add_argument(
        "--golden", type=Path, metavar="RUN", help="a run in high precision: which side is further from it?"
    )
    group.add_argument(
        "--min-coverage",
        type=share,
        metavar="SHARE",
        help="least share of pairs judged (0.95); below: exit 3",
    )
    group.add_argument(
        "--constants", type=Path, metavar="FILE", help="other constants of the bounds (yaml, json, toml)"
    )
    group.add_argument(
        "--comparator",
        type=comma_words,
        action="extend",
        metavar="NAMES",
        help="only these comparators for the table; `msprobe plugins` lists them",
    )


def _add_choosing(made: Parser) -> None:
    group = made.add_argument_group("matching and choosing")
    group.add_argument("--mapping", metavar="FILE", help="which node is which: layers.yaml, or a name such as hf-vllm")
    group.add_argument("--swap", action="store_true", help="read the mapping file from reference to candidate")
    group.add_argument(
        "--merge",
        action=argparse.BooleanOptionalAction,
        help="compare as whole models, all ranks as one (default: where the meshes differ)",
    )
    group.add_argument("--rank", type=ranks, default=(), metavar="RANGES", help="only these ranks: 0,8-15")
    group.add_argument("--step", type=steps, default=(), metavar="RANGES", help="only these steps: 0,5,10-20,100-")


def _add_showing(made: Parser) -> None:
    group = made.add_argument_group("showing")
    group.add_argument(
        "--out", type=folder, metavar="DIR", help="write summary.json, pairs.parquet and the formats here"
    )
    group.add_argument(
        "--format",
        type=comma_words,
        default=["table"],
        metavar="NAMES",
        help="table, html, web, markdown, csv, json, junit, parquet, xlsx, or another package's; default table",
    )
    group.add_argument("--limit", type=natural, metavar="N", help="rows of the table; 0: none, only the story")
    group.add_argument("--quiet", action="store_true", help="print only the verdict")
    group.add_argument("--no-progress", action="store_true", help="show no progress bar (only terminals get one)")
