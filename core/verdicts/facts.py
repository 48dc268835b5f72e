"""What differs in the circumstances of two runs: module scalars, arguments, random states, versions, environment."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msprobe.core.comparison import ContextDifference

if TYPE_CHECKING:
    from msprobe.core.matching.views import RankView
    from msprobe.core.verdicts.table import RankMatch

#: Kinds of facts that tell how the work was spread over ranks; they explain nothing.
_OF_RANKS = frozenset({"parallel", "merged"})

#: What differs between any two runs and explains nothing.
_ALWAYS_DIFFERS = frozenset({"start_time", "pid", "host", "hostname", "out", "path", "run", "time"})

_ABSENT = "(absent)"

#: Shown values are cut to this length.
_LONGEST = 120


#: (scope and candidate's node path, kind, name) of a fact.
Key = tuple[str, str, str]
#: The values of one fact over time: (step, text), in order; a value holds until the next.
History = list[tuple[int, str]]


@dataclass(frozen=True)
class FactTable:
    """The facts of both sides of one rank over time."""

    candidate: Mapping[Key, History]
    reference: Mapping[Key, History]

    @classmethod
    def of_rank(cls, match: RankMatch) -> FactTable:
        """Collects the facts of one rank; nodes of the reference go by their partner's name."""
        names_c = {index: node.path for index, node in enumerate(match.candidate.nodes)}
        names_r = {r: names_c[c] for c, r in enumerate(match.nodes.partner.tolist()) if r >= 0}
        return cls(_histories(match.candidate, names_c), _histories(match.reference, names_r))

    def differing_at(self, kind: str, step: int) -> dict[str, tuple[str, str]]:
        """Gives the facts of a kind about the run whose values differ at a step: name to both values."""
        found = {}
        for key in self.candidate.keys() & self.reference.keys():
            values = _value_at(self.candidate[key], step), _value_at(self.reference[key], step)
            if key[:2] == ("run:", kind) and values[0] != values[1]:
                found[key[2]] = values
        return dict(sorted(found.items()))


def _histories(run: RankView, names: Mapping[int, str]) -> dict[Key, History]:
    found: dict[Key, History] = defaultdict(list)
    for fact in run.facts:
        if fact.node < 0:
            found[("run:", fact.kind, fact.name)].append((fact.step, _text(fact.value)))
        elif fact.node in names:
            found[(f"node:{names[fact.node]}", fact.kind, fact.name)].append((fact.step, _text(fact.value)))
    return found


def _value_at(history: History, step: int) -> str:
    value = _ABSENT
    for at, text in history:
        if at > step:
            break
        value = text
    return value


def _first_difference(candidate: History, reference: History) -> tuple[str, str] | None:
    """Gives both values where they first differ, from the step on at which both sides have one."""
    if not candidate or not reference:
        return (candidate or [(0, _ABSENT)])[0][1], (reference or [(0, _ABSENT)])[0][1]
    start = max(candidate[0][0], reference[0][0])
    for step in sorted({start, *(step for step, _ in (*candidate, *reference) if step > start)}):
        values = _value_at(candidate, step), _value_at(reference, step)
        if values[0] != values[1]:
            return values
    return None


def differing_facts(tables: Sequence[FactTable]) -> list[ContextDifference]:
    """Gives the facts that differ, those of nodes present on both sides only; each once over all ranks."""
    found: dict[Key, ContextDifference] = {}
    for table in tables:
        for key in {**table.candidate, **table.reference}:
            place, kind, name = key
            if name in _ALWAYS_DIFFERS or kind in _OF_RANKS or key in found:
                continue
            differing = _first_difference(table.candidate.get(key, []), table.reference.get(key, []))
            if differing is not None:
                found[key] = ContextDifference(kind, place.partition(":")[2], name, *differing)
    return list(found.values())


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
