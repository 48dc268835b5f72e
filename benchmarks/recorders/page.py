"""The table of ``benchmarks.recording`` as a page of the documentation."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

_HEAD = (
    "| work | model | peer | msprobe | must | reading tensors | one plain read | one plain write | rest "
    "| peak, MB (peer) | disk a step, MB (peer) | records (peer) | bytes a record |"
)


def page(lines: Sequence[dict[str, Any]], machine: dict[str, Any], *, rounds: int = 0) -> str:
    """Gives the page: how it was measured, then one row for each line of work and model."""
    rows = [_HEAD, "|---" * _HEAD.count(" | ") + "|---|", *map(_row, lines)]
    table = "\n".join(rows)
    return f"{_introduction(machine, rounds)}\n{table}\n" if rounds else table


def _introduction(machine: dict[str, Any], rounds: int) -> str:
    shared = "others were using it at the time" if machine["load"] > 1 else "nothing else ran on it"
    return f"""# What recording costs

Written by `python -m benchmarks.recording --page docs/benchmarks.md` (in `make bench`), from one run on
{machine["cores"]} cores of "{machine["processor"]}", {machine["system"]}, Python {machine["python"]}; the load was
{machine["load"]:.1f}, so {shared}.

A Llama (hidden size x layers), batch 2, sequence 128, fp32, AdamW, one thread. Ratios are CPU time of a step to that of
the same step without a tool, all threads counted: the median of {rounds} rounds, the lowest and the highest, then
the fastest turn against the fastest one without a tool. The processes of a row take turns.

The peer is mindstudio-probe 26.2.0. At op level it records the forward calls of Python functions, msprobe every
operator: forward, backward and in the optimizer. Milliseconds are a step's: what the recorder spends measuring or
copying tensors, what one plain sum over the same bytes takes, what writing these to a file once takes, and everything
else that the recorder adds (hooks, and its writer's thread).
Peak memory is above that of the training alone.

Attached and not recording is measured in pairs of turns inside one process, without and with the probe: the median
ratio and its 95 % interval. That no hook or mode is in place then is tested
([test_session.py](../tests/adapters/pytorch/test_session.py)).
"""


def _row(line: dict[str, Any]) -> str:
    ours, peer = line["costs"]["msprobe"], line["costs"].get("peer")
    cells = [
        line["work"],
        f"{line['size'][0]} x {line['size'][1]}",
        _ratio(peer) if peer else "",
        _interval(ours) if ours["interval"] else _ratio(ours),
        line["must"],
        *_parts(line["off"], ours),
        *(_uses(ours, peer) if ours["measuring"] else [""] * 4),
    ]
    return "| " + " | ".join(cells) + " |"


def _parts(off: float, ours: dict[str, Any]) -> list[str]:
    split = ours["measuring"]
    if not split:
        return [""] * 4
    rest = (statistics.median(ours["cpu"]) - 1) * off - split["measuring"]
    return [
        f"{split['measuring'] * 1e3:.1f} ms, {split['bytes'] / 1e6:.0f} MB",
        f"{split['read'] * 1e3:.1f} ms",
        f"{split['write'] * 1e3:.1f} ms" if "write" in split else "",
        f"{rest * 1e3:.1f} ms",
    ]


def _uses(ours: dict[str, Any], peer: dict[str, Any] | None) -> list[str]:
    records = ours["records"]
    return [
        _pair(ours, peer, lambda cost: f"{cost['peak_bytes'] / 1e6:+.0f}"),
        _pair(ours, peer, lambda cost: f"{cost['disk_bytes'] / 1e6:.2f}"),
        _pair(ours, peer, lambda cost: f"{cost['records']}"),
        f"{ours['disk_bytes'] / records:,.0f}" if records else "",
    ]


def _interval(cost: dict[str, Any]) -> str:
    low, high = cost["interval"]
    return f"**{statistics.median(cost['cpu']):.4f}**, 95 % interval {low:.4f}-{high:.4f} ({len(cost['cpu'])} pairs)"


def _pair(ours: dict[str, Any], peer: dict[str, Any] | None, text: Any) -> str:
    return f"{text(ours)} ({text(peer)})" if peer else str(text(ours))


def _ratio(cost: dict[str, Any]) -> str:
    middle, low, high = statistics.median(cost["cpu"]), min(cost["cpu"]), max(cost["cpu"])
    digits = 3 if high < 1.1 else 2
    return f"**{middle:.{digits}f}** ({low:.{digits}f}-{high:.{digits}f}), {cost['fastest']:.{digits}f}"
