"""One complete step of one rank as the rules see it: columns of its records, names of their sites, its scalars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from msprobe.core.records import HAS, STATISTICS, Status
from msprobe.core.sites import Direction, Role

if TYPE_CHECKING:
    from msprobe.core.run.batch import Batch

Array = NDArray[Any]
Mask = NDArray[np.bool_]

DIRECTIONS: Final = tuple(Direction)
ROLES: Final = tuple(Role)
_COLUMNS: Final = ("seq", "micro_step", "site", "form", "status", "has", *STATISTICS)
#: What a gradient scaler's skip is called among the scalars; its value is the scale.
SCALER_SKIP: Final = "scaler_skip"


class Catalogue:
    """The sites and forms that one rank has named so far, as columns that grow."""

    def __init__(self) -> None:
        self._nodes: list[str] = []
        self._sites: list[tuple[int, int, int]] = []
        self._arguments: list[str] = []
        self._elements: list[int] = []
        self._dimensions: list[int] = []
        self._columns: dict[str, Array] = {}

    def take(self, batch: Batch) -> None:
        """Adds what is new in a batch."""
        self._nodes.extend(node.path for node in batch.nodes)
        self._arguments.extend(site.argument for site in batch.sites)
        for site in batch.sites:
            self._sites.append((site.node, DIRECTIONS.index(site.direction), ROLES.index(site.role)))
        for form in batch.forms:
            count = int(np.prod(form.shape, dtype=np.int64)) if form.shape else 1
            self._elements.append(count * 2 if form.dtype.startswith("complex") else count)
            self._dimensions.append(len(form.shape))
        if batch.sites or batch.forms or not self._columns:
            sites = np.array(self._sites, np.int64).reshape(-1, 3)
            self._columns = dict(zip(("node", "direction", "role"), sites.T, strict=True))
            self._columns["elements"] = np.array(self._elements, np.int64)
            self._columns["dimensions"] = np.array(self._dimensions, np.int64)

    def __getitem__(self, name: str) -> Array:
        """Gives node, direction and role by site, or elements and dimensions by form."""
        return self._columns[name]

    @property
    def num_sites(self) -> int:
        """How many sites there are."""
        return len(self._sites)

    @property
    def is_update(self) -> Mask:
        """Tells which sites hold updates or their ratio, which are as large as the learning rate."""
        ends = np.array([argument.endswith((".update", ".ratio")) for argument in self._arguments], bool)
        found: Mask = ends & (self["role"] == ROLES.index(Role.DERIVED))
        return found

    def path(self, site: int) -> str:
        """Gives the path of a site's node."""
        return self._nodes[self._sites[site][0]]

    def argument(self, site: int) -> str:
        """Gives a site's argument."""
        return self._arguments[site]


@dataclass(frozen=True, slots=True)
class Past:
    """What was normal at the rows' sites before this step; NaN where too little is known.

    ``score`` is that of ``core.robust`` over logarithms, the one of root mean square or largest magnitude that lies
    further out; ``departs`` where it is an alert. ``count`` is how many observations of the site there were, ``zeros``
    and ``constants`` how many of them were that, ``nans`` and ``infs`` how many held such.
    """

    score: Array
    factor: Array
    departs: Mask
    drift: Array
    count: Array
    zeros: Array
    constants: Array
    nans: Array
    infs: Array


@dataclass(frozen=True, slots=True)
class StepView:
    """The measured records of a step in order of execution, all arrays of one length; not to be changed.

    Statistics are those of ``core.records``, over the finite elements.
    """

    step: int
    rank: int
    rows: Mapping[str, Array]
    catalogue: Catalogue
    #: The last value of each scalar of the step.
    scalars: Mapping[str, float] = field(default_factory=dict)
    #: The step of each; what is logged after the optimizer's step comes one step late.
    scalar_steps: Mapping[str, int] = field(default_factory=dict)
    #: Micro-steps up to here were left out by a gradient scaler; -1: none.
    skipped: int = -1
    past: Past | None = None

    def __len__(self) -> int:
        return len(self.rows["seq"])

    @property
    def direction(self) -> Array:
        """Positions in ``tuple(Direction)``."""
        return self.catalogue["direction"][self.rows["site"]]

    @property
    def role(self) -> Array:
        """Positions in ``tuple(Role)``."""
        return self.catalogue["role"][self.rows["site"]]

    @property
    def elements(self) -> Array:
        """Counts of elements."""
        return self.catalogue["elements"][self.rows["form"]]

    def is_role(self, *roles: Role) -> Mask:
        """Tells which rows have one of the roles."""
        return np.isin(self.role, [ROLES.index(role) for role in roles])

    def is_direction(self, *directions: Direction) -> Mask:
        """Tells which rows have one of the directions."""
        return np.isin(self.direction, [DIRECTIONS.index(direction) for direction in directions])

    def argument_ends(self, end: str) -> Mask:
        """Tells which rows' arguments end like this."""
        return np.array([self.catalogue.argument(int(s)).endswith(end) for s in self.rows["site"]], bool)


def rows_of(parts: Sequence[Mapping[str, Array]], length_of: Catalogue) -> dict[str, Array]:
    """Joins the measured records of the parts of a step; ``finite``, ``rms`` and ``max_abs`` are added."""
    joined = {name: np.concatenate([part[name] for part in parts]) for name in _COLUMNS}
    usable = (joined["status"] == Status.MEASURED) & ((joined["has"] & HAS["statistics"]) != 0)
    rows = {name: column[usable] for name, column in joined.items()}
    elements = length_of["elements"][rows["form"]]
    finite = elements - rows["nan"] - rows["pos_inf"] - rows["neg_inf"]
    rows["finite"] = finite
    rows["rms"] = rows["norm"] / np.sqrt(np.maximum(finite, 1))
    rows["max_abs"] = np.fmax(np.abs(rows["min"]), np.abs(rows["max"]))
    return rows


def has_statistics(records: Mapping[str, Array]) -> bool:
    """Tells whether a batch holds the columns that rules read."""
    return bool(records) and all(name in records for name in _COLUMNS)
