"""``msprobe info``: what a run holds, what that costs, and in what the circumstances of two runs differ."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msprobe.cli.kinds import kind_lines
from msprobe.cli.layout import aligned, shown_size, shown_spans
from msprobe.cli.parsing import Parser, UsageError

if TYPE_CHECKING:
    from msprobe.core.run.reader import Run

_EXAMPLES = """\
  msprobe info runs/a           # steps, ranks, records, events, bytes of each kind
  msprobe info runs/a runs/b    # versions, arguments, settings and module scalars that differ
  msprobe info --system         # libraries and adapters on this machine
"""
#: Events of one kind that are shown in full.
_EVENTS_SHOWN = 5
#: What msprobe rests on or can use, for --system.
_LIBRARIES = ("numpy", "nanoarrow", "duckdb", "safetensors", "pydantic", "torch", "xlsxwriter", "pandas", "pyarrow")


def parser() -> Parser:
    """Gives the command's parser."""
    made = Parser(
        "info",
        usage="RUN [RUN] | --system",
        description="Show what a run holds and what it costs on disk. With two runs, show in what their\n"
        "circumstances differ: versions, arguments, environment, options, scalars of modules.",
        examples=_EXAMPLES,
    )
    made.add_argument("runs", type=Path, nargs="*", metavar="RUN", help="one run directory, or two")
    made.add_argument("--system", action="store_true", help="show what is available on this machine")
    return made


def run(arguments: argparse.Namespace) -> int:
    """Prints what was asked for."""
    if arguments.system:
        print("\n".join(_system_lines()))
    if len(arguments.runs) > 2 or not (arguments.runs or arguments.system):
        raise UsageError("name one run, or two to see in what they differ. See `msprobe info --help`.")
    if not arguments.runs:
        return 0
    from msprobe.core.run.reader import open_run

    runs = [open_run(path) for path in arguments.runs]
    lines = _run_lines(runs[0]) if len(runs) == 1 else _difference_lines(*runs)
    print("\n".join(lines))
    return 0


def _run_lines(run: Run) -> Iterator[str]:
    header = run.header
    versions = ", ".join(f"{name} {version}" for name, version in list(header.versions.items())[:3])
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.started))
    flags = [name for name, on in (("perturbed", header.perturbed), ("altered", run.altered)) if on]
    world = run.rank(run.ranks[0]).info.world_size
    mesh = "".join(f" {name}={size}" for name, size in header.mesh.items())
    starts = sum(len(run.rank(rank).headers) for rank in run.ranks)
    whole = len({step for rank in run.ranks for step in run.rank(rank).complete_steps})
    sizes = run.sizes()
    yield f"{run.path}{''.join(f' ({flag})' for flag in flags)}"
    facts = [
        ("framework", " ".join(filter(None, (header.framework, f"({versions})" if versions else "")))),
        ("recorded", f"{when}, {run.duration:.1f} s" + (f", {starts} starts" if starts > len(run.ranks) else "")),
        ("command", " ".join(header.arguments) or "(not known)"),
        ("ranks", f"{shown_spans(run.ranks)} of {world}{mesh}"),
        ("steps", f"{shown_spans(run.steps) or 'none'} ({len(run.steps)}, {whole} complete)"),
        ("options", _options(header.config)),
        ("records", f"{run.num_records:,}"),
        ("on disk", shown_size(sum(sizes.values()))),
    ]
    yield from ("  " + line for line in aligned([(name, value) for name, value in facts if value]))
    yield from _cost_lines(run, sizes)
    yield from _record_lines(run)
    yield from _recording_lines(run)
    yield from _event_lines(run)


def _recording_lines(run: Run) -> Iterator[str]:
    """Says what a reader must know: restarts, ranks that died or never started, clocks."""
    from msprobe.core.scan.recording import circumstance_notes
    from msprobe.core.trend.circumstances import circumstances_of

    notes = circumstance_notes([circumstances_of(rank, run.rank(rank)) for rank in run.ranks])
    if notes:
        yield ""
        yield "  recording"
        yield from (f"    {note}" for note in notes)


def _options(config: object) -> str:
    """Shows the options that are not as they would be without saying anything."""
    from dataclasses import asdict

    from msprobe.core.options import RecordOptions
    from msprobe.core.presets import PRESETS

    if not isinstance(config, dict) or "level" not in config:
        return ""
    preset = str(config.get("preset", ""))
    base = RecordOptions.create(preset=preset) if preset in PRESETS else RecordOptions()
    plain = {name: _comparable(value) for name, value in asdict(base).items()}
    if preset:  # its rules stand there by where they are
        plain.pop("alerts")
    always = (
        f"preset={preset} " if preset else ""
    ) + f"level={config['level']} what={','.join(sorted(config.get('what', ())))}"
    others = [
        f"{name}={value}"
        for name, value in config.items()
        if name in plain and name not in ("preset", "level", "what") and _comparable(value) != plain[name]
    ]
    return " ".join([always, *others])


def _comparable(value: object) -> object:
    return sorted(map(str, value)) if isinstance(value, list | tuple | set | frozenset) else value


def _cost_lines(run: Run, sizes: dict[str, int]) -> Iterator[str]:
    total, steps, records = sum(sizes.values()), max(1, len(run.steps)), max(1, run.num_records)
    rows: list[tuple[str, ...]] = [("COST", "SIZE", "SHARE", "PER STEP", "PER RECORD")]
    for kind, size in sorted(sizes.items(), key=lambda item: -item[1]):
        rows.append(
            (kind, shown_size(size), f"{size / total:.0%}", shown_size(size / steps), shown_size(size / records))
        )
    yield ""
    yield from ("  " + line for line in aligned(rows, right=(1, 2, 3, 4)))


def _record_lines(run: Run) -> Iterator[str]:
    import numpy as np

    from msprobe.core.records import Status

    unmeasured: dict[str, int] = {}
    for rank in run.ranks:
        for status, number in zip(*np.unique(run.rank(rank).records["status"], return_counts=True), strict=True):
            if status != Status.MEASURED:
                name = Status(int(status)).name.lower().replace("_", " ")
                unmeasured[name] = unmeasured.get(name, 0) + int(number)
    yield from kind_lines(run)
    if unmeasured:
        yield "  without values: " + ", ".join(f"{number:,} {name}" for name, number in unmeasured.items())


def _event_lines(run: Run) -> Iterator[str]:
    found: dict[str, list[str]] = {}
    for rank in run.ranks:
        for event in run.rank(rank).events:
            place = f" at {event.node}" if event.node else ""
            times = f" ({event.count} times)" if event.count > 1 else ""
            found.setdefault(event.kind, []).append(f"rank {rank}, step {event.step}{place}: {event.message}{times}")
    for kind, messages in found.items():
        yield ""
        yield f"  {kind}: {len(messages)}"
        yield from (f"    {message}" for message in messages[:_EVENTS_SHOWN])
        if len(messages) > _EVENTS_SHOWN:
            yield f"    and {len(messages) - _EVENTS_SHOWN} more"


def _difference_lines(candidate: Run, reference: Run) -> Iterator[str]:
    from msprobe.cli.circumstances import differing_circumstances

    differences = differing_circumstances(candidate, reference)
    if not differences:
        yield "The circumstances of the two runs are the same, as far as they were recorded."
        return
    rows: list[tuple[str, ...]] = [("KIND", "WHAT", str(candidate.path), str(reference.path))]
    for d in differences:
        rows.append((d.kind, ".".join(filter(None, (d.node, d.name))), d.candidate, d.reference))
    yield from aligned(rows)


def _system_lines() -> Sequence[str]:
    from msprobe.core import kernels
    from msprobe.plugins import plugin_table

    rows: list[tuple[str, ...]] = [
        ("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        ("processors", str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())),
        ("kernels", kernels.status()),
    ]
    for name in _LIBRARIES:
        try:
            rows.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            rows.append((name, "not installed"))
    rows += [(f"adapter {p.name}", f"{p.state} ({p.origin})") for p in plugin_table().of_kind("adapters")]
    return aligned(rows)
