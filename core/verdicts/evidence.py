"""What speaks for a source: sizes, exact factors, non-finite counts, scalars, leftovers of the step before."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from msprobe.core.sites import Direction, Role
from msprobe.core.verdicts.factors import meaning
from msprobe.core.verdicts.facts import FactTable, differing_facts
from msprobe.core.verdicts.table import DIRECTIONS, PairTable, Side

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.comparison import ContextDifference
    from msprobe.core.verdicts.constants import Constants
    from msprobe.core.verdicts.errors import Errors
    from msprobe.core.verdicts.flow import Flow

#: Ratios that bugs make: sums instead of means, a step counted twice, a sign. Powers of two up to a large mesh, and
#: small counts.
_FACTORS = tuple(sorted({*range(2, 17), *(2**k for k in range(5, 13))}))

#: Kinds of facts that are about a node; the others are about the run, whose path is that of the root: empty.
_OF_NODES = frozenset({"scalar", "argument", "shared"})

#: Words in the classes of modules and operators that draw random numbers.
_RANDOM = ("dropout", "bernoulli", "rand", "multinomial", "normal_", "uniform", "exponential")

#: How many rows of a source are looked at for a common factor; a bug that holds for these holds for all.
_TRIED_ROWS = 64

#: How many agreeing sources are named.
_NAMED_SOURCES = 4


class EvidenceFinder:
    """Looks for evidence in what both runs recorded."""

    def __init__(self, table: PairTable, errors: Errors, flow: Flow, constants: Constants) -> None:
        self._table, self._errors, self._flow, self._constants = table, errors, flow, constants
        self._facts: dict[str, list[ContextDifference]] = defaultdict(list)
        self._tables = {match.rank: FactTable.of_rank(match) for match in table.matches}
        for difference in differing_facts(list(self._tables.values())):
            if difference.kind in _OF_NODES:
                self._facts[difference.node].append(difference)
        updates = np.flatnonzero(table.is_role(Role.GRADIENT) & table.is_direction(Direction.UPDATE))
        places = zip(table.site[updates].tolist(), table.step[updates].tolist(), strict=True)
        self._updates = dict(zip(places, updates.tolist(), strict=True))

    def evidence(self, rows: list[int], node: str, *, error: float, bound: float) -> tuple[str, ...]:
        """Gives sentences, the most telling first."""
        found = [*self._leftover(rows), *self._factor(rows), *self._nonfinite(rows[0]), *self._scalars(node)]
        found += self._random_state(rows[0]) + self._classes(rows[0]) + self._settings_of_update(rows[0])
        if np.isfinite(error):
            explained = (
                f"rounding and its inputs explain {bound:.1e}" if np.isfinite(bound) else "nothing there explains any"
            )
            found.append(f"relative error {error:.1e} ({self._errors.kind[rows[0]]}); {explained}")
        return (*found, *self._agreeing(rows[0]))

    def _nonfinite(self, row: int) -> list[str]:
        found = []
        for name, word in (("nan", "NaN"), ("pos_inf", "+Inf"), ("neg_inf", "-Inf")):
            c, r = (side.statistics[name][row] for side in (self._table.candidate, self._table.reference))
            if c != r and not (np.isnan(c) or np.isnan(r)):
                found.append(f"{word}: {int(c)} in the candidate, {int(r)} in the reference")
        return found

    def _scalars(self, node: str) -> list[str]:
        return [
            f"{d.name}: {d.candidate} in the candidate, {d.reference} in the reference"
            for d in self._facts.get(node, ())
        ]

    def _classes(self, row: int) -> list[str]:
        facts, site = self._table.sites, self._table.site[row]
        candidate, reference = str(facts.candidate_class[site]), str(facts.reference_class[site])
        if not candidate or not reference or candidate == reference:
            return []
        return [f"class: {candidate} in the candidate, {reference} in the reference"]

    def _random_state(self, row: int) -> list[str]:
        """Quotes differing random states where the node draws random numbers."""
        site = self._table.site[row]
        classes = f"{self._table.sites.candidate_class[site]} {self._table.sites.reference_class[site]}".lower()
        if not any(word in classes for word in _RANDOM):
            return []
        names = self._tables[int(self._table.rank[row])].differing_at("rng", int(self._table.step[row]))
        return [f"random states differ at the start of the step: {', '.join(names)}"] if names else []

    def _settings_of_update(self, row: int) -> list[str]:
        """Quotes the optimizer's settings that differ at the step whose update made a parameter what it is."""
        before = self._flow.across_steps[self._flow.across_steps[:, 1] == row, 0]
        if not len(before):
            return []
        step = int(self._table.step[before].max())
        differing = self._tables[int(self._table.rank[row])].differing_at("optimizer", step)
        return [f"{name}: {c} in the candidate, {r} in the reference" for name, (c, r) in differing.items()]

    def _factor(self, rows: list[int]) -> list[str]:
        factors = {self.exact_factor(row) for row in rows[:_TRIED_ROWS]}
        if len(factors) != 1 or None in factors:
            return []
        (factor,) = factors
        assert factor is not None
        told = meaning(self._table, factor, int(self._table.step[rows[0]]))
        return [f"the candidate is exactly {factor} times the reference{told}"]

    def exact_factor(self, row: int) -> str | None:
        """Gives the clean factor between the two sides of a row (2, 1/4, -1 ...), or None."""
        sides = (self._table.candidate, self._table.reference)
        sketched = all(side.sketch is not None and not np.isnan(side.sketch[row]).any() for side in sides)
        x, y = (self._coordinates(side, row, sketched=sketched) for side in sides)
        if x is None or y is None or not np.any(y):
            return None
        ratio = float(x @ y / (y @ y))
        if np.linalg.norm(x - ratio * y) > self._constants.exact_factor * np.linalg.norm(x):
            return None
        sign, size = ("-" if ratio < 0 else ""), abs(ratio)
        for factor in (1, *_FACTORS):
            for value, text in ((float(factor), f"{factor}"), (1.0 / factor, f"1/{factor}")):
                if abs(size - value) <= self._constants.exact_factor * value and (sign or factor != 1):
                    return f"{sign}{text}"
        return None

    @staticmethod
    def _coordinates(side: Side, row: int, *, sketched: bool) -> NDArray[np.float64] | None:
        """Gives numbers that all scale with the tensor: its sketch, or statistics; None where they were not kept."""
        if sketched and side.sketch is not None:
            sketch: NDArray[np.float64] = side.sketch[row]
            return sketch
        values = np.array([side.statistics[name][row] for name in ("mean", "mean_abs", "norm")])
        return None if np.isnan(values).any() else values

    def _leftover(self, rows: list[int]) -> list[str]:
        """Recognises accumulated gradients that still hold those of the step before: a missing zero_grad."""
        table, sketches = self._table, self._table.candidate.sketch
        if sketches is None or table.reference.sketch is None:
            return []
        held, seen = 0, 0
        for row in rows[:_TRIED_ROWS]:
            if DIRECTIONS[int(table.sites.direction[table.site[row]])] != Direction.UPDATE.value:
                return []
            before = self._updates.get((int(table.site[row]), int(table.step[row]) - 1))
            if before is None:
                continue
            seen += 1
            surplus = sketches[row] - table.reference.sketch[row] - sketches[before]
            held += bool(np.linalg.norm(surplus) <= 1e-2 * np.linalg.norm(sketches[before]))
        if not seen or held < seen / 2:
            return []
        return ["the surplus is the gradient of the step before: zero_grad is missing"]

    def _agreeing(self, row: int) -> list[str]:
        names: list[str] = []
        own = str(self._table.sites.candidate_node[self._table.site[row]])
        for source in self._flow.edges[self._flow.edges[:, 1] == row, 0].tolist():
            site = self._table.site[source]
            name = str(self._table.sites.candidate_node[site] or self._table.sites.reference_node[site])
            if name and name != own and name not in names:
                names.append(name)
        if not names:
            return []
        more = f" and {len(names) - _NAMED_SOURCES} more" if len(names) > _NAMED_SOURCES else ""
        guessed = " (supposed from the order of execution)" if self._flow.by_order[row] else ""
        verb = "agrees" if len(names) == 1 else "agree"
        return [f"computed from {', '.join(names[:_NAMED_SOURCES])}{more}, which {verb}{guessed}"]
