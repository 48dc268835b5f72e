"""What differs in the circumstances of two runs: module scalars, arguments, random states, versions, environment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msprobe.core.comparison import ContextDifference

if TYPE_CHECKING:
    from msprobe.core.verdicts.table import RankMatch

#: What differs between any two runs and explains nothing.
_ALWAYS_DIFFERS = frozenset({"start_time", "pid", "host", "hostname", "out", "path", "run", "time"})

_ABSENT = "(absent)"

#: Shown values are cut to this length.
_LONGEST = 120


@dataclass(frozen=True)
class FactTable:
    """The last value of each fact of both sides of one rank, by (candidate's node path, kind, name)."""

    candidate: Mapping[tuple[str, str, str], str]
    reference: Mapping[tuple[str, str, str], str]

    @classmethod
    def of_rank(cls, match: RankMatch) -> FactTable:
        """Collects the facts of one rank; nodes of the reference go by their partner's name."""
        partner_name: dict[int, str] = {}
        for candidate, reference in enumerate(match.nodes.partner.tolist()):
            if reference >= 0:
                partner_name[reference] = match.candidate.nodes[candidate].path
        sides: list[dict[tuple[str, str, str], str]] = [{}, {}]
        for fact in match.candidate.facts:
            name = match.candidate.nodes[fact.node].path if fact.node >= 0 else ""
            scope = "node" if fact.node >= 0 else "run"
            sides[0].setdefault((f"{scope}:{name}", fact.kind, fact.name), _text(fact.value))
        for fact in match.reference.facts:
            if fact.node >= 0 and fact.node not in partner_name:
                continue
            name, scope = (partner_name[fact.node], "node") if fact.node >= 0 else ("", "run")
            sides[1].setdefault((f"{scope}:{name}", fact.kind, fact.name), _text(fact.value))
        return cls(*sides)


def differing_facts(tables: Sequence[FactTable]) -> list[ContextDifference]:
    """Gives the facts that differ, those of nodes present on both sides only; each once over all ranks."""
    found: dict[tuple[str, str, str], ContextDifference] = {}
    for table in tables:
        for key in {**table.candidate, **table.reference}:
            place, kind, name = key
            candidate, reference = table.candidate.get(key, _ABSENT), table.reference.get(key, _ABSENT)
            if candidate == reference or name in _ALWAYS_DIFFERS or key in found:
                continue
            found[key] = ContextDifference(kind, place.partition(":")[2], name, candidate, reference)
    return list(found.values())


def differing_random_states(match: RankMatch) -> dict[int, tuple[str, ...]]:
    """Gives, by step, the random generators whose states differ at its start."""
    sides = []
    for run in (match.candidate, match.reference):
        state: dict[str, str] = {}
        by_step: dict[int, dict[str, str]] = {}
        for fact in run.facts:
            if fact.node < 0 and fact.kind == "rng":
                state = {**state, fact.name: _text(fact.value)}
                by_step[fact.step] = state
        sides.append(by_step)
    found: dict[int, tuple[str, ...]] = {}
    for step in sides[0].keys() & sides[1].keys():
        states = [side[step] for side in sides]
        differing = [name for name in states[0].keys() & states[1].keys() if states[0][name] != states[1][name]]
        found[step] = tuple(sorted(differing))
    return found


def differing_headers(
    candidate: Mapping[str, object], reference: Mapping[str, object], kind: str
) -> list[ContextDifference]:
    """Compares two flat or nested mappings of the run headers, by dotted names."""
    flat_c, flat_r = _flat(candidate), _flat(reference)
    return [
        ContextDifference(kind, "", name, flat_c.get(name, _ABSENT), flat_r.get(name, _ABSENT))
        for name in {**flat_c, **flat_r}
        if flat_c.get(name) != flat_r.get(name) and name.rpartition(".")[2] not in _ALWAYS_DIFFERS
    ]


def _flat(values: Mapping[str, object], prefix: str = "") -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found.update(_flat(value, f"{prefix}{key}."))
        else:
            found[f"{prefix}{key}"] = _text(value)
    return found


def _text(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
