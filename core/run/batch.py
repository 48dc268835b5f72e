"""What the recorder hands to the writer: columns of records and what is new in the catalogue.

Numbers of nodes, sites, forms and stacks count from 0 in the order in which one process first handed them over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.core.graph import EdgeSource
    from msprobe.core.sites import Direction, Form, Node, Role

#: A rough size of one entry of the catalogue in memory, for the bound of the queue.
_ENTRY_BYTES = 200
_ENTRIES = ("nodes", "sites", "forms", "edges", "stacks", "facts", "events")


@dataclass(frozen=True, slots=True)
class RankInfo:
    """Who records: the global rank, its place on the parallel mesh, its device and host.

    ``mesh`` holds the rank's coordinate and the number of ranks along each axis, ``{"tp": (1, 2), "dp": (0, 4)}``, with
    the names of ``core.placement.AXES``. Axes may overlap (expert-parallel ranks are data-parallel ones too).
    """

    rank: int = 0
    world_size: int = 1
    mesh: Mapping[str, Sequence[int]] = field(default_factory=dict)
    device: str = ""
    host: str = ""


@dataclass(frozen=True, slots=True)
class RunHeader:
    """What is known of a run when it starts; everything in it can be written as JSON."""

    framework: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    #: The options of the recording.
    config: Mapping[str, Any] = field(default_factory=dict)
    #: Sizes of the parallel mesh.
    mesh: Mapping[str, int] = field(default_factory=dict)
    #: The command line of the program.
    arguments: tuple[str, ...] = ()
    #: Environment, devices, modes: what may explain a difference.
    context: Mapping[str, Any] = field(default_factory=dict)
    #: The inputs were moved by one rounding on purpose.
    perturbed: bool = False
    #: Recording changes how the program computes; later changes are events of kind "altered".
    altered: bool = False


@dataclass(frozen=True, slots=True)
class SiteRow:
    """A site by numbers: the node's, and the stack's (-1: no stack)."""

    node: int
    direction: Direction
    role: Role
    argument: str
    call: int
    stack: int = -1


@dataclass(frozen=True, slots=True)
class Fact:
    """Something known that is no tensor: a module's scalar, an argument, a random generator's state."""

    step: int
    micro_step: int
    #: Number of the node; -1: it is about the run.
    node: int
    #: "scalar", "argument", "rng", "context", "batch", "config", "loss", ...
    kind: str
    name: str
    #: Anything JSON can hold; the rest is kept as its repr.
    value: Any


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to the recording: "gap", "drop", "altered", "alert", "schedule", "error", ..."""

    kind: str
    message: str
    step: int
    #: Path of the node; "" when it is about the run or the root module.
    node: str = ""
    count: int = 1
    #: More about it, as JSON holds it: the fields of an alert (``core.alerts``).
    details: Mapping[str, Any] = field(default_factory=dict)


def raw_bytes(data: Any) -> memoryview:
    """Gives the bytes of an array or a buffer, without a copy when they lie in one piece."""
    array = np.ascontiguousarray(data) if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    return array.reshape(-1).view(np.uint8).data


def num_bytes(data: NDArray[Any] | bytes | bytearray | memoryview) -> int:
    """Gives how many bytes an array or a buffer holds."""
    return data.nbytes if isinstance(data, (np.ndarray, memoryview)) else len(data)


@dataclass(frozen=True, slots=True)
class SavedTensor:
    """A tensor's exact bits on the host; ``seq`` is the record that it belongs to."""

    seq: int
    #: Canonical name of the format (core.dtypes).
    dtype: str
    shape: tuple[int, ...]
    #: Row-major bytes, in the byte order of the machine.
    data: NDArray[Any] | bytes | bytearray | memoryview

    @property
    def nbytes(self) -> int:
        return num_bytes(self.data)


@dataclass(frozen=True, slots=True)
class SavedRows:
    """The row statistics of one record: columns of one length each."""

    seq: int
    columns: Mapping[str, NDArray[Any]]

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self.columns.values())


@dataclass(slots=True)
class Batch:
    """What one step, or a part of a long one, adds to a run.

    The batch belongs to the writer once it was submitted.
    """

    step: int
    nodes: list[Node] = field(default_factory=list)
    sites: list[SiteRow] = field(default_factory=list)
    forms: list[Form] = field(default_factory=list)
    #: Numbers of source and target site, and how the edge is known.
    edges: list[tuple[int, int, EdgeSource]] = field(default_factory=list)
    stacks: list[tuple[str, ...]] = field(default_factory=list)
    #: Columns of ``core.records.RECORD_COLUMNS``; a column that is missing is filled.
    records: dict[str, NDArray[Any]] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    tensors: list[SavedTensor] = field(default_factory=list)
    rows: list[SavedRows] = field(default_factory=list)
    #: Whether the step ends with this batch.
    complete: bool = True

    def __len__(self) -> int:
        """Counts the records."""
        return len(self.records["seq"]) if self.records else 0

    @property
    def nbytes(self) -> int:
        """Gives about how much memory the batch holds."""
        entries = sum(len(getattr(self, name)) for name in _ENTRIES)
        records = sum(np.asarray(column).nbytes for column in self.records.values())
        saved = sum(t.nbytes for t in self.tensors) + sum(r.nbytes for r in self.rows)
        return entries * _ENTRY_BYTES + records + saved

    def take_over(self, earlier: Batch) -> None:
        """Puts the catalogue, facts and events of an earlier batch in front of this one's."""
        for name in _ENTRIES:
            getattr(self, name)[:0] = getattr(earlier, name)
