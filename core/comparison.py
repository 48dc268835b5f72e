"""The result of a comparison: a table of pairs, a summary of what it says, and how both are stored.

Everything that shows a comparison (terminal, files, pages) reads these and computes nothing of its own.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from msprobe.core.errors import ComparisonError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from msprobe.core.verdicts.pair_records import PairRecords

#: Version of ``summary.json`` and of the columns of ``pairs.parquet``.
SCHEMA_VERSION = 1

#: Statistics that are shown for both sides of a pair.
SHOWN_STATISTICS: tuple[str, ...] = ("min", "max", "mean", "norm", "nan", "pos_inf", "neg_inf", "zero")

#: The columns of ``Comparison.pairs`` and what they mean, apart from one column for each comparator that ran.
PAIR_COLUMNS: dict[str, str] = {
    "rank": "global rank",
    "step": "optimizer step",
    "micro_step": "forward-backward pass inside the step",
    "order": "sequence number of the candidate's record (the reference's where it has none): order of execution",
    "reference_order": "sequence number of the reference's record; -1 where it has none",
    "candidate_node": "path of the node in the candidate; empty when it has none",
    "reference_node": "path of the node in the reference; empty when it has none",
    "direction": "forward, backward, recompute or update",
    "role": "input, output, parameter, buffer, gradient or saved",
    "argument": "path of the tensor inside the call's arguments or result, or the parameter's name",
    "candidate_call": "call of the node within the micro-step; -1 when the side is absent",
    "reference_call": "the same for the reference",
    "candidate_class": "class of the module or name of the operator",
    "reference_class": "the same for the reference",
    "candidate_dtype": "canonical number format",
    "reference_dtype": "the same for the reference",
    "candidate_shape": "local shape, as 2x128x256; empty text for a scalar",
    "reference_shape": "the same for the reference",
    "verdict": "equal, normal, introduced, suspect, inherited, inconclusive or unmatched",
    "reason": "why this verdict",
    "error": "relative L2 error of candidate against reference; NaN when it cannot be computed",
    "error_kind": "what the error was computed from: tensor, sketch, rows, statistics, checksum, limits, empty, "
    "or order (the same elements, elsewhere); empty text when it was not",
    "error_eps": "the error in units of the unit roundoff of the coarser format",
    "bound": "the error that rounding and the inputs' errors explain; NaN when unknown",
    "bound_source": "where the bound comes from: local, noise, golden, optimizer, exact, format",
    "match_reason": "how the two sites were paired",
    "match_confidence": "0 to 1",
    "note": "what else is worth knowing (other number format, non-finite on both sides, ...)",
    **{f"candidate_{name}": f"{name} of the candidate" for name in SHOWN_STATISTICS},
    **{f"reference_{name}": f"{name} of the reference" for name in SHOWN_STATISTICS},
}


class Verdict(str, Enum):
    """What is said of one pair; the order of definition is the order of decision."""

    UNMATCHED = "unmatched"
    INCONCLUSIVE = "inconclusive"
    EQUAL = "equal"
    NORMAL = "normal"
    INTRODUCED = "introduced"
    INHERITED = "inherited"
    SUSPECT = "suspect"


class RunVerdict(str, Enum):
    """What is said of the whole comparison."""

    CLEAN = "clean"
    INHERITED_ONLY = "inherited only"
    SUSPECT = "suspect"
    INTRODUCED = "introduced"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True)
class Coverage:
    """How much the verdict covers. Counts are of records; shares are of what stands before them.

    ``matched`` of all records of both sides (a pair counts once), ``aligned`` of the matched, ``judged`` of the
    matched.
    """

    records: int
    matched: int
    aligned: int
    judged: int
    unmatched_candidate: int = 0
    unmatched_reference: int = 0
    #: Of records whose sides lay out tokens differently, the share of tokens that are on both; NaN when there are none.
    tokens_share: float = float("nan")

    @property
    def matched_share(self) -> float:
        """Gives the share of records that have a partner; NaN when there is no record."""
        return self.matched / self.records if self.records else float("nan")

    @property
    def aligned_share(self) -> float:
        """Gives the share of matched records whose elements line up."""
        return self.aligned / self.matched if self.matched else float("nan")

    @property
    def judged_share(self) -> float:
        """Gives the share of matched records that got a verdict other than inconclusive."""
        return self.judged / self.matched if self.matched else float("nan")


@dataclass(frozen=True, slots=True)
class Source:
    """One independent place where a difference arises from agreeing inputs.

    ``node`` is the module or operator to look at; where the difference arose in the own code of a container, between
    modules that agree, it is that container and ``own_code`` is True. Node and class are empty for what has one cause
    in many modules, outside of the model: the optimizer, or what changes gradients before it. ``site`` is where it was
    first seen. ``occurrences`` counts the pairs that this source stands for (other steps, ranks, arguments).
    """

    node: str
    node_class: str
    site: str
    direction: str
    role: str
    argument: str
    own_code: bool
    rank: int
    step: int
    micro_step: int
    error: float
    error_eps: float
    bound: float
    verdict: str
    sentence: str
    evidence: tuple[str, ...] = ()
    occurrences: int = 1
    ranks: tuple[int, ...] = ()
    steps: tuple[int, ...] = ()
    row: int = -1


@dataclass(frozen=True, slots=True)
class Finding:
    """Something worth knowing that is not a verdict on a pair: a missing rank, a difference of format, a gap."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class ContextDifference:
    """Something in which the two runs' circumstances differ: a version, an argument, a module's scalar."""

    kind: str
    node: str
    name: str
    candidate: str
    reference: str


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Which run stands on a side."""

    path: str
    framework: str
    ranks: tuple[int, ...]
    steps: tuple[int, ...]
    records: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What the comparison says, in the order in which people ask."""

    verdict: str
    sentence: str
    exit_code: int
    coverage: Coverage
    sources: tuple[Source, ...]
    findings: tuple[Finding, ...]
    counts: dict[str, int]
    context: tuple[ContextDifference, ...]
    constants: dict[str, float]
    candidate: RunIdentity
    reference: RunIdentity


@dataclass(frozen=True)
class Comparison:
    """The comparison of two runs: ``summary`` says it, ``pairs`` proves it.

    ``pairs`` maps each column of ``PAIR_COLUMNS``, and the name of each comparator that ran, to an array with one entry
    for each pair; sites without a partner are rows too. ``records`` leads to what was compared while the runs are open;
    it is not saved.
    """

    summary: Summary
    pairs: Mapping[str, NDArray[Any]]
    comparators: tuple[str, ...] = field(default=())
    records: PairRecords | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.pairs["verdict"])

    def __repr__(self) -> str:
        coverage = self.summary.coverage
        counts = ", ".join(f"{count} {name}" for name, count in self.summary.counts.items() if count)
        lines = [
            f"Comparison: {self.summary.verdict}",
            self.summary.sentence,
            f"{len(self)} pairs: {counts}",
            f"matched {coverage.matched_share:.1%}, judged {coverage.judged_share:.1%} of these",
        ]
        return "\n".join(lines)

    def rows(self, *verdicts: str) -> NDArray[np.int64]:
        """Gives the indices of the pairs with one of these verdicts, in order of execution."""
        index = np.flatnonzero(np.isin(self.pairs["verdict"], verdicts))
        keys = ("order", "rank", "micro_step", "step")
        return index[np.lexsort([self.pairs[key][index] for key in keys])]

    def to_pandas(self) -> Any:
        """Gives the pairs as a pandas data frame.

        Raises:
            ComparisonError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ComparisonError(
                "pandas is not installed: pip install pandas, or use .pairs (NumPy arrays)."
            ) from error
        return pd.DataFrame(dict(self.pairs))

    def to_arrow(self) -> Any:
        """Gives the pairs as a pyarrow table.

        Raises:
            ComparisonError: pyarrow is not installed.
        """
        try:
            import pyarrow as pa
        except ImportError as error:
            raise ComparisonError("pyarrow is not installed: pip install pyarrow, or use .save(folder).") from error
        return pa.table({name: pa.array(column) for name, column in self.pairs.items()})

    def summary_json(self) -> str:
        """Gives the summary as strict JSON text; non-finite numbers are the texts NaN, Infinity, -Infinity."""
        document = {"schema_version": SCHEMA_VERSION, **asdict(self.summary)}
        coverage = self.summary.coverage
        document["coverage"]["matched_share"] = coverage.matched_share
        document["coverage"]["judged_share"] = coverage.judged_share
        return json.dumps(_strict(document), indent=1, ensure_ascii=False, allow_nan=False)

    def save(self, folder: Path | str) -> tuple[Path, ...]:
        """Writes ``summary.json`` and ``pairs.parquet`` into the folder and names them."""
        from msprobe.core.parquet import write_parquet

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        summary, pairs = folder / "summary.json", folder / "pairs.parquet"
        summary.write_text(self.summary_json() + "\n", encoding="utf-8")
        write_parquet(pairs, self.pairs)
        return summary, pairs


def _strict(value: object) -> object:
    """Replaces non-finite numbers, which JSON cannot hold, by their names."""
    if isinstance(value, dict):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if np.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value
