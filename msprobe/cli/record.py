"""``msprobe record``: runs a training script and records what its models compute, with no edit to the script."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from msprobe.cli.outcome import warn_of_nothing
from msprobe.cli.parsing import Parser, UsageError, folder
from msprobe.core.errors import RecordingError
from msprobe.core.options import BATCH_ORDERS, LEVEL_ALIASES, LEVELS, OPTION_NAMES, SEQUENCE_CUTS, RecordOptions
from msprobe.core.presets import PRESETS
from msprobe.core.records import WHAT
from msprobe.plugins import find_launcher
from msprobe.recording import with_plugins

_DESCRIPTION = """\
Run a Python program and record what its models compute. The program needs no change: every model whose
optimizer is made, or that is called outermost, is found and watched. Its output, arguments and exit code
stay its own."""

_EXAMPLES = """\
  msprobe record --out runs/a -- python train.py --lr 3e-4
  msprobe record --steps 0,50-60 --what statistics,sketch,tensors --out runs/a -- python train.py
  msprobe record --level op --targets '*.layers.0.*' --out runs/op -- torchrun --nproc-per-node 2 train.py
  msprobe record --repeat-perturbed --out runs/b -- python train.py   # and once more, into runs/b-perturbed
  msprobe record --config probe.yaml --out runs/a -- python -m my.trainer

  # then
  msprobe compare runs/a runs/b --noise runs/b-perturbed
"""


_WATCHED = {
    "optimizer_state": "what the optimizer keeps of each parameter",
    "updated_parameters": "parameters after the optimizer's step",
    "updates": "by how much a step moves each parameter",
    "scalars": "learning rate, gradient norm, loss",
    "collectives": "what collectives over ranks take and give",
    "routing": "load and entropy of routers of experts",
    "attention": "entropy and largest logit of attention",
    "stop_on_alert": "end the training when there is an alert",
    "control": "take changes of options by `msprobe ctl`",
}


class _RecordParser(Parser):
    """Keeps what follows ``--`` away from argparse: it belongs to the program."""

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """Parses what stands before the first ``--`` and keeps the rest as ``command``."""
        cut = list(words).index("--") if "--" in words else len(words)
        found = super().read(words[:cut])
        found.command = list(words[cut + 1 :])
        return found


def parser() -> Parser:
    """Gives the command's parser."""
    made = _RecordParser(
        "record",
        usage="[options] --out DIR -- COMMAND [ARGUMENT ...]",
        description=_DESCRIPTION,
        examples=_EXAMPLES,
    )
    _add_run(made)
    _add_what(made)
    _add_where(made)
    _add_switches(made)
    _add_watching(made)
    return made


def run(arguments: argparse.Namespace) -> int:
    """Runs the program under the recorder and gives its exit code."""
    if not arguments.command:
        raise UsageError("nothing to run. Name the program after `--`: msprobe record --out runs/a -- python train.py")
    check_run_directory(arguments.out)
    options = with_plugins(chosen_options(arguments), arguments.config)
    launch = find_launcher(arguments.adapter)
    code = int(launch(arguments.command, options, arguments.out, perturb=arguments.repeat_perturbed))
    warn_of_nothing(arguments.out, options, code)
    return code


def chosen_options(arguments: argparse.Namespace) -> RecordOptions:
    """Gives the options of the config file, where there is one, with those of the command line over them."""
    given: dict[str, Any] = {name: value for name, value in vars(arguments).items() if name in OPTION_NAMES}
    if arguments.config is None:
        return RecordOptions.create(**given)
    from msprobe.core.config import load_options

    return load_options(arguments.config, given)


def check_run_directory(path: Path) -> None:
    """Refuses a place that holds something other than a run.

    Raises:
        RecordingError: The path is a file, or a folder with files of others.
    """
    if path.is_file():
        raise RecordingError(f"--out {path}: is a file. Name a new folder.")
    if path.is_dir() and any(path.iterdir()) and not (path / "run.json").is_file():
        raise RecordingError(f"--out {path}: holds files that are no run of msprobe. Name a new or empty folder.")


def _add_run(made: Parser) -> None:
    made.add_argument("--out", type=folder, required=True, metavar="DIR", help="the run directory to write")
    made.add_argument("--adapter", default="pytorch", metavar="NAME", help="the framework's adapter (%(default)s)")
    made.add_argument("--config", type=Path, metavar="FILE", help="options from a file (probe.yaml, .json, .toml)")
    _option(made, "preset", "NAME", f"options that belong together: {', '.join(PRESETS)}; others given here win")
    made.add_argument(
        "--repeat-perturbed",
        action="store_true",
        help="run it once more with inputs moved by one rounding, into DIR-perturbed: a floor for compare --noise",
    )


def _add_what(made: Parser) -> None:
    group = made.add_argument_group("what to keep")
    aliases = ", ".join(f"{short} = {level}" for short, level in LEVEL_ALIASES.items())
    _option(group, "level", "LEVEL", f"{', '.join(LEVELS)} ({aliases}); default module")
    _option(group, "what", "WORDS", f"of each tensor: {', '.join(WHAT)}; default statistics,sketch")
    group.add_argument(
        "--what-for",
        type=_pattern_and_what,
        action="append",
        default=argparse.SUPPRESS,
        metavar="PATTERN=WORDS",
        help="other --what where a node path or class fits the pattern; may be repeated, the first that fits wins",
    )
    _option(group, "tensor_budget", "SIZE", "stop saving tensors after so much on disk, such as 20GB; default no limit")
    _option(group, "queue_bytes", "SIZE", "memory that may wait for the disk before detail is dropped; default 256MiB")
    group.add_argument(
        "--stacks", action="store_true", default=argparse.SUPPRESS, help="keep the Python call stack of each site"
    )


def _add_where(made: Parser) -> None:
    group = made.add_argument_group("where and when")
    _option(group, "targets", "PATTERNS", "only nodes whose path, class or operator fits, such as '*.mlp,Linear'")
    _option(group, "exclude", "PATTERNS", "but not those that fit one of these")
    _option(group, "steps", "RANGES", "only these optimizer steps: 0,5,10-20,100- (20 is included); default all")
    group.add_argument("--every", type=int, default=argparse.SUPPRESS, metavar="N", help="only each N-th step")
    group.add_argument(
        "--window", type=int, default=argparse.SUPPRESS, metavar="N", help="of each --every steps, so many in a row"
    )
    _option(group, "ranks", "RANGES", "only these global ranks: 0,8-15; default all")
    _option(group, "mesh", "AXES", "axes of the parallel mesh, outermost first: pp=2,tp=4; default as torch tells")
    _option(group, "batch_order", "ORDER", f"how data-parallel ranks share a batch: {', '.join(BATCH_ORDERS)}")
    _option(group, "context_parallel", "WAY", f"how cp cuts the sequence: {', '.join(SEQUENCE_CUTS)}; default not told")
    _option(group, "layouts", "TARGETS", "module:attribute of rules for layers that do not say how they are cut")
    group.add_argument(
        "--start-step", type=int, default=argparse.SUPPRESS, metavar="N", help="the number of the first step; default 0"
    )


def _add_switches(made: Parser) -> None:
    group = made.add_argument_group("switches")
    for name in ("inputs", "outputs", "parameters", "buffers", "gradients"):
        group.add_argument(
            f"--no-{name}", dest=name, action="store_false", default=argparse.SUPPRESS, help=f"do not record {name}"
        )
    group.add_argument(
        "--no-trace",
        dest="trace",
        action="store_false",
        default=argparse.SUPPRESS,
        help="do not follow data flow in the first recorded step",
    )
    group.add_argument(
        "--no-vectors",
        dest="vectors",
        action="store_false",
        default=argparse.SUPPRESS,
        help="do not sum rows and columns of parameters in the first step",
    )
    group.add_argument(
        "--allow-decompile",
        action="store_true",
        default=argparse.SUPPRESS,
        help="let op level run compiled regions eagerly; the run is then marked altered",
    )


def _add_watching(made: Parser) -> None:
    group = made.add_argument_group("watching a training (on with --preset monitor)")
    for name, text in _WATCHED.items():
        flag = f"--{name.replace('_', '-')}"
        group.add_argument(flag, dest=name, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=text)
    _option(group, "alerts", "NAMES", "rules that watch while recording, such as nan,departure; module:attribute too")
    _option(group, "on_alert", "FUNCTION", "module:function that is called with each alert")
    group.add_argument(
        "--dump-on-alert",
        type=int,
        default=argparse.SUPPRESS,
        metavar="N",
        help="save the tensors of the guilty node on the step after an alert, N times at most",
    )


def _option(group: argparse._ActionsContainer, name: str, metavar: str, text: str) -> None:
    flag = "--queue-size" if name == "queue_bytes" else f"--{name.replace('_', '-')}"
    group.add_argument(flag, dest=name, default=argparse.SUPPRESS, metavar=metavar, help=text)


def _pattern_and_what(text: str) -> tuple[str, str]:
    pattern, equals, words = text.partition("=")
    if not equals or not words:
        raise argparse.ArgumentTypeError(f"{text!r} is no PATTERN=WORDS, such as '*.mlp=statistics,tensors'")
    return pattern, words
