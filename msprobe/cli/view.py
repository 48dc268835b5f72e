"""``msprobe view``: opens one run, two runs, or a saved comparison in the browser."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe.cli.parsing import Parser, UsageError, natural, ranks, steps
from msprobe.plugins import plugin_table

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison

_DESCRIPTION = """\
Show two runs side by side in the browser: the verdict, all layers in one look, both models as one graph
coloured by verdict, and the trends of every number over steps, ranks and modules. One run alone shows its
trends. Serves on this machine only, to whoever has the address it prints, until Ctrl-C."""

_EXAMPLES = """\
  msprobe view runs/npu runs/gpu --open              # compare, then open the browser
  msprobe view runs/a                                # one run: its trends over steps, ranks and modules
  msprobe view report                                # saved by msprobe compare --out report
  msprobe view runs/a runs/b --save layers.yaml      # match nodes by hand, save, reuse with --mapping
  msprobe view runs/a runs/b --export report.html    # one file to send to somebody; nothing is served

over ssh, forward the port:
  ssh -L 8000:127.0.0.1:8000 HOST      and there:  msprobe view ... --port 8000
"""

#: The plugin that shows the pages.
_PAGES = "web"


def parser() -> Parser:
    """Gives the command's parser."""
    made = Parser("view", usage="RUN [REFERENCE] [options]", description=_DESCRIPTION, examples=_EXAMPLES)
    made.add_argument("candidate", type=Path, metavar="RUN", help="the run in doubt, or a saved comparison")
    made.add_argument("reference", type=Path, nargs="?", metavar="REFERENCE", help="the run that is trusted")
    comparing = made.add_argument_group("comparing")
    comparing.add_argument("--mapping", type=Path, metavar="FILE", help="which node is which (layers.yaml)")
    comparing.add_argument("--swap", action="store_true", help="read the mapping file from reference to candidate")
    comparing.add_argument("--noise", type=Path, metavar="RUN", help="the reference repeated or perturbed")
    comparing.add_argument("--golden", type=Path, metavar="RUN", help="a run in high precision")
    comparing.add_argument("--rank", type=ranks, default=(), metavar="RANGES", help="only these ranks: 0,8-15")
    comparing.add_argument("--step", type=steps, default=(), metavar="RANGES", help="only these steps: 0,5,10-20,100-")
    serving = made.add_argument_group("serving")
    serving.add_argument("--port", type=natural, default=0, metavar="N", help="the port; default: any that is free")
    serving.add_argument(
        "--host", default="127.0.0.1", metavar="NAME", help="listen elsewhere than on this machine; the token stays"
    )
    serving.add_argument(
        "--save", type=Path, metavar="FILE", help="where nodes matched by hand are saved (default: the --mapping file)"
    )
    serving.add_argument("--open", action="store_true", help="open the address in the browser")
    serving.add_argument("--export", type=Path, metavar="FILE", help="write one self-contained page instead of serving")
    return made


def run(arguments: argparse.Namespace) -> int:
    """Compares or reads, then serves or exports."""
    pages = plugin_table().get("visualizers", _PAGES)
    export: Path | None = arguments.export
    if export is not None and export.is_dir():
        raise UsageError(f"--export {export} is a directory. Name a file, such as {export / 'report.html'}.")
    comparison, runs = _opened(arguments)
    if export is not None and comparison is None:
        raise UsageError("--export writes a comparison; name the run to compare with, too.")
    if export is not None:
        export.parent.mkdir(parents=True, exist_ok=True)
        export.write_text(pages.render(comparison), encoding="utf-8")
        print(f"written: {export}")
        return 0
    # Rules are added to the file as it is written: read the other way round, they would not fit.
    judge = None if arguments.reference is None or arguments.swap else partial(_compare, arguments)
    if comparison is not None:
        print(comparison.summary.sentence)
    ready = partial(_ready, browse=arguments.open)
    pages.serve(
        comparison,
        runs=runs,
        judge=judge,
        mapping=arguments.mapping,
        save_to=arguments.save or (arguments.mapping if not arguments.swap else None),
        host=arguments.host,
        port=arguments.port,
        ready=ready,
    )
    return 0


def _ready(address: str, *, browse: bool) -> None:
    print(f"\n  {address}\n\nCtrl-C ends it.", flush=True)
    if browse:
        webbrowser.open(address)


def _opened(arguments: argparse.Namespace) -> tuple[Comparison | None, list[Path]]:
    """Gives what is compared, if anything, and the runs whose trends are shown."""
    from msprobe.core.run.reader import open_run
    from msprobe.core.saved_comparison import is_comparison, read_comparison

    folder: Path = arguments.candidate
    if arguments.reference is not None:
        return _compare(arguments, arguments.mapping), [folder, arguments.reference]
    if not is_comparison(folder):
        open_run(folder)  # says what is wrong with it when it is no run at all
        return None, [folder]
    saved = read_comparison(folder)
    sides = [Path(side.path) for side in (saved.summary.candidate, saved.summary.reference)]
    return saved, sides if all((path / "run.json").is_file() for path in sides) else []


def _compare(arguments: argparse.Namespace, mapping: Path | None) -> Comparison:
    from msprobe.comparing import compare

    return compare(
        arguments.candidate,
        arguments.reference,
        noise=arguments.noise,
        golden=arguments.golden,
        mapping=mapping,
        swap=arguments.swap,
        ranks=arguments.rank,
        steps=arguments.step,
        progress=sys.stderr.isatty(),
    )
