"""What a plugin object must look like: the promises between core and the plugin folders."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Self

    from msprobe.core.alerts.findings import Finding
    from msprobe.core.alerts.view import StepView
    from msprobe.core.comparison import Comparison
    from msprobe.core.measures import MeasuredPair
    from msprobe.core.merging.rules import LayoutRule
    from msprobe.core.options import RecordOptions
    from msprobe.core.sites import Form


@runtime_checkable
class Comparator(Protocol):
    """Measures a pair of tensors.

    ``compare`` gets two float64 (or complex128, or for exact formats int64/uint64/bool) arrays of one shape, which
    it must not change, and answers one number; NaN where it is undefined (the reason belongs in ``undefined``).
    """

    name: str
    #: "lower" or "higher": which side of the scale is agreement.
    better: str
    #: The formula in plain text, and where it comes from.
    formula: str
    source: str

    def compare(self, candidate: NDArray[Any], reference: NDArray[Any]) -> float: ...


@runtime_checkable
class PairComparator(Comparator, Protocol):
    """Derives its number from measures of a pair, taken once for all comparators in one pass over both tensors.

    Where a comparator has ``compare_pair`` it is called in the place of ``compare``. ``core.measures.OfPair`` gives the
    latter to a class that has the former.
    """

    def compare_pair(self, pair: MeasuredPair) -> float: ...


@runtime_checkable
class StatisticsComparator(Protocol):
    """Measures many pairs of recorded statistics at once, for runs without tensors.

    Both sides map a column of ``core.records`` to an array with one entry for each pair.
    """

    name: str
    better: str
    formula: str
    source: str

    def compare_statistics(
        self, candidate: Mapping[str, NDArray[Any]], reference: Mapping[str, NDArray[Any]]
    ) -> NDArray[np.float64]: ...


@runtime_checkable
class Visualizer(Protocol):
    """Shows a comparison: writes files into ``out`` and names them, or with ``out`` None gives text."""

    name: str
    #: The file it writes, "" for the terminal.
    file_name: str

    def render(self, comparison: Comparison) -> str | bytes: ...


@runtime_checkable
class AlertRule(Protocol):
    """Watches a training while it is recorded; a fresh object for each recording of a rank, so it may keep state.

    ``check`` is called in the writer's thread with each complete step, in order. It must not change what it is given.
    """

    name: str
    summary: str

    def check(self, step: StepView) -> Iterable[Finding]:
        """Gives what it objects to in the step."""
        ...


class Snapshot(Protocol):
    """A copy of one tensor on its way to the host; a ``core.run.batch.SavedTensor`` without its number."""

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def data(self) -> NDArray[np.uint8]:
        """The exact bytes in row-major order, valid after the ``Reducer.collect`` that follows the copy."""
        ...


class RowSnapshot(Protocol):
    """The row statistics of one tensor on their way to the host."""

    @property
    def columns(self) -> Mapping[str, NDArray[Any]]:
        """The columns of ``core.row_statistics``, valid after the ``Reducer.collect`` that follows."""
        ...


class Reducer(Protocol):
    """The device side of the recorder: turns tensors of one framework into rows of numbers.

    ``measure`` must enqueue all work on the tensor's own device before it returns and must not wait for it;
    ``collect`` waits once and gives what was measured since the last call.

    A reducer may also have ``measure_plain(tensor, what) -> tuple[Form, int] | None``: ``describe`` and ``measure`` in
    one, for tensors where that is quicker; None where it is not.

    A reducer whose adapter asks for "vectors" of parameters also has ``vectors(tensor) -> RowSnapshot``:
    ``core.content_vectors`` under the names of ``VECTORS``.
    """

    def describe(self, tensor: Any) -> Form: ...

    def measure(self, tensor: Any, what: frozenset[str]) -> int:
        """Starts measuring statistics, sketch and checksums, as asked; gives their row in what ``collect`` gives."""
        ...

    def collect(self) -> Mapping[str, NDArray[Any]]:
        """Waits for everything measured since the last call and gives its columns, one row per slot."""
        ...

    def snapshot(self, tensor: Any) -> Snapshot:
        """Copies the values before it returns, in stream order on a device; the next ``collect`` completes it."""
        ...

    def rows(self, tensor: Any) -> RowSnapshot:
        """Starts measuring the tensor's rows; the next ``collect`` completes it."""
        ...


class Probe(Protocol):
    """A recording under way; leaving the ``with`` block closes it."""

    def step(self) -> None:
        """Ends a step of the recording, unless an optimizer that it was given does."""
        ...

    def log(self, **scalars: Any) -> None:
        """Notes numbers of the step, such as the loss: plain ones or tensors of one element."""
        ...

    def close(self) -> None:
        """Takes every hook away again and finishes the run."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


class Adapter(Protocol):
    """Watches models of one framework. Making one must import nothing that ``requires`` does not name."""

    name: str

    def owns(self, model: object) -> bool:
        """Tells whether the model belongs to this framework."""
        ...

    def record(
        self, model: Any, path: Path, options: RecordOptions, *, optimizer: Any = None, **context: object
    ) -> Probe:
        """Starts recording the model (or the models of a mapping, by name) into a run directory."""
        ...

    def save(self, tensor: Any, name: str) -> None:
        """Records a tensor under a name in every recording under way."""
        ...

    def seed_all(self, seed: int, *, deterministic: bool = True) -> None:
        """Seeds the framework and asks it for deterministic algorithms."""
        ...


class TensorSource(Protocol):
    """Reads saved tensors of one run."""

    def __call__(self, rank: int, seqs: Sequence[int]) -> Sequence[NDArray[Any]]: ...


PathLike = str | Path


@runtime_checkable
class LayoutRules(Protocol):
    """Says how the layers of some classes are cut over ranks, for runs in which nothing tells."""

    name: str
    rules: Sequence[LayoutRule]
