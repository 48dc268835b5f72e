"""The record: one observation of one site at one step on one rank.

Records are columns, never rows of objects: a table maps each column's name to one NumPy array. The names, types and
meanings stand here and nowhere else; the writer, the reader, the comparison and the pages use them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

#: How many +-1 projections a sketch holds.
SKETCH_SIZE = 8


class Status(IntEnum):
    """Whether a record's statistics could be measured, and if not why."""

    MEASURED = 0
    #: The tensor holds no values (meta, fake).
    NO_VALUES = 1
    #: Memory that nobody has written yet (``torch.empty``): statistics would be of garbage.
    UNINITIALISED = 2
    #: A type of tensor whose values cannot be read here.
    UNSUPPORTED = 3
    #: Measuring failed; the event log tells why.
    FAILED = 4
    #: Dropped by back-pressure or budget; the event log counts them.
    DROPPED = 5


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table: its NumPy dtype, its width if it is a fixed-size list, its meaning."""

    name: str
    dtype: str
    meaning: str
    width: int = 0
    #: Which ``what`` brings the column into a segment; "" when it is always there.
    wanted_by: str = ""


#: The columns of a record. Statistics are over the finite elements; NaN when there is none.
#: The element count is the product of the form's shape; finite = elements - nan - pos_inf - neg_inf.
#: Complex tensors count as twice as many real elements; bool as 0 and 1.
RECORD_COLUMNS: tuple[Column, ...] = (
    Column("seq", "uint64", "number of the record on its rank, in order of execution, unique in a segment"),
    Column("step", "int64", "optimizer step, as the user numbers it"),
    Column("micro_step", "int32", "forward-backward pass inside the step, from 0"),
    Column("site", "uint32", "row of the sites table"),
    Column("form", "uint32", "row of the forms table"),
    Column("status", "uint8", "core.records.Status"),
    Column("has", "uint8", "bit i is set when WHAT[i] was kept; columns of what was not kept hold fillers"),
    Column("tensor", "int64", "seq of the record whose values are saved and equal to this one's; -1 when not saved"),
    Column("min", "float64", "smallest finite element", wanted_by="statistics"),
    Column("max", "float64", "largest finite element", wanted_by="statistics"),
    Column("mean", "float64", "mean of the finite elements", wanted_by="statistics"),
    Column("mean_abs", "float64", "mean of |x| over the finite elements", wanted_by="statistics"),
    Column("m2", "float64", "sum of squared deviations from the mean over the finite elements", wanted_by="statistics"),
    Column("norm", "float64", "root of the sum of squares of the finite elements", wanted_by="statistics"),
    Column("nan", "int64", "count of NaN", wanted_by="statistics"),
    Column("pos_inf", "int64", "count of +Inf", wanted_by="statistics"),
    Column("neg_inf", "int64", "count of -Inf", wanted_by="statistics"),
    Column("zero", "int64", "count of zeros of either sign", wanted_by="statistics"),
    Column(
        "sketch",
        "float64",
        "+-1 projections of the finite elements, signs keyed by the element's index (core.sketches)",
        width=SKETCH_SIZE,
        wanted_by="sketch",
    ),
    Column("checksum", "uint64", "positional checksum (core.checksums)", wanted_by="checksums"),
    Column("content_sum", "uint64", "position-free checksum (core.checksums)", wanted_by="checksums"),
    Column("rows", "int64", "seq under which the row statistics are saved; -1 when none", wanted_by="rows"),
)

#: What a recording can be asked to keep of each tensor.
WHAT: tuple[str, ...] = ("statistics", "sketch", "rows", "checksums", "tensors")

#: ``has`` of a record by what is asked: ``records["has"] & HAS["sketch"]`` tells where there is a sketch.
HAS: dict[str, int] = {name: 1 << i for i, name in enumerate(WHAT)}


#: Names under which content sums of rows and columns are saved beside row statistics (``core.content_vectors``).
VECTORS: tuple[str, ...] = ("row_sums", "column_sums")


def filler(column: Column) -> float | int:
    """Gives the value that stands in a column where nothing was kept: NaN, -1, or for unsigned columns 0."""
    kind = column.dtype.rstrip("0123456789")
    return {"float": float("nan"), "int": -1}.get(kind, 0)


STATISTICS: tuple[str, ...] = tuple(c.name for c in RECORD_COLUMNS if c.wanted_by == "statistics")


def record_columns(what: frozenset[str]) -> tuple[Column, ...]:
    """Gives the columns that a segment recorded with ``what`` holds, in order."""
    return tuple(c for c in RECORD_COLUMNS if not c.wanted_by or c.wanted_by in what)
