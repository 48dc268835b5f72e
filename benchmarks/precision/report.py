"""Writes the outcomes of PrecisionBench as JSON and as the table in the documentation."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks.precision.clean import CLEAN
from benchmarks.precision.faults import FAULTS
from benchmarks.precision.scorer import MIN_JUDGED, Outcome

_HEAD = """\
# PrecisionBench

Written by `python -m benchmarks.precision.run`; do not edit.

{intro}

A fault counts as found only when the *first* source of the report is the expected module (or, for a fault between the
children of a module, that module), in the expected direction, role and step. Expectations were written to
`expected.json` before anything was recorded; that each fault changes what it should, and nothing before it, was
checked with plain PyTorch hooks. A clean pair passes when nothing is called introduced and at least {share:.0%} of its
matched sites are judged.
"""


def write(outcomes: Sequence[Outcome], folder: Path, *, how: str) -> tuple[Path, Path]:
    """Writes ``precision-bench.json`` and ``precision-bench.md``."""
    folder.mkdir(parents=True, exist_ok=True)
    data, page = folder / "precision-bench.json", folder / "precision-bench.md"
    rows = [_strict(asdict(outcome)) for outcome in outcomes]
    data.write_text(json.dumps({"how": how, "outcomes": rows}, indent=1, allow_nan=False) + "\n")
    page.write_text(markdown(outcomes, how=how))
    return data, page


def markdown(outcomes: Sequence[Outcome], *, how: str) -> str:
    """Gives the page of the documentation."""
    parts = [_HEAD.format(intro=how, share=MIN_JUDGED), _score(outcomes)]
    faults, clean = ([o for o in outcomes if o.group == group] for group in ("fault", "clean"))
    if faults:
        parts += ["## Faults\n", _faults(faults), "### Misses\n", _misses(faults)]
    if clean:
        parts += ["## Clean pairs\n", _clean(clean), "### Failures\n", _misses(clean)]
    return "\n".join(parts)


def score(outcomes: Iterable[Outcome]) -> tuple[int, int]:
    """Gives how many passed, of how many."""
    results = [outcome.passed for outcome in outcomes]
    return sum(results), len(results)


def _score(outcomes: Sequence[Outcome]) -> str:
    lines = ["| group | mode | passed | of | share |", "|---|---|---|---|---|"]
    groups = defaultdict(list)
    for outcome in outcomes:
        groups[outcome.group, outcome.mode].append(outcome)
    for (group, mode), members in sorted(groups.items()):
        passed, total = score(members)
        lines.append(f"| {group} | {mode} | {passed} | {total} | {passed / total:.1%} |")
    return "\n".join(lines) + "\n"


def _faults(outcomes: Sequence[Outcome]) -> str:
    names = sorted({o.architecture for o in outcomes})
    head = "| kind | what | expected first source | size of the effect | " + " | ".join(names) + " |"
    lines = [head, "|---" * (4 + len(names)) + "|"]
    for fault in FAULTS:
        members = [o for o in outcomes if o.kind == fault.kind]
        if not members:
            continue
        sizes = [o.effect for o in members]
        size = f"{min(sizes):.1g} to {max(sizes):.1g}" if math.isfinite(max(sizes)) else "NaN"
        cells = [_cell(o for o in members if o.architecture == name) for name in names]
        lines.append(f"| {fault.kind} | {fault.summary} | {fault.place} | {size} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _clean(outcomes: Sequence[Outcome]) -> str:
    head = "| kind | what | pairs passed | least judged | rows not equal | introduced | suspect | run verdicts |"
    lines = [head, "|---" * 8 + "|"]
    for kind in CLEAN:
        members = [o for o in outcomes if o.kind == kind.kind]
        if not members:
            continue
        differing, rows = sum(o.differing for o in members), sum(sum(o.counts.values()) for o in members)
        introduced, suspect = (sum(o.counts.get(v, 0) for o in members) for v in ("introduced", "suspect"))
        verdicts = ", ".join(sorted({o.verdict for o in members}))
        lines.append(
            f"| {kind.kind} | {kind.summary} | {_cell(members)} | {min(o.judged for o in members):.1%} "
            f"| {differing / max(rows, 1):.0%} | {introduced} | {suspect} | {verdicts} |"
        )
    return "\n".join(lines) + "\n"


def _misses(outcomes: Sequence[Outcome]) -> str:
    missed = [o for o in outcomes if not o.passed]
    if not missed:
        return "None.\n"
    lines = ["| case | layer | effect | place in the list | first source | why |", "|---|---|---|---|---|---|"]
    for o in missed:
        lines.append(
            f"| {o.place} | {o.layer if o.layer >= 0 else ''} | {'' if math.isnan(o.effect) else f'{o.effect:.2g}'} "
            f"| {o.position or 'absent'} | {o.found} | {o.why} |"
        )
    return "\n".join(lines) + "\n"


def _cell(outcomes: Iterable[Outcome]) -> str:
    passed, total = score(outcomes)
    return f"{passed}/{total}" if total else ""


def _strict(value: object) -> object:
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
