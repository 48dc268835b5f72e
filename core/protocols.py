"""What a plugin object must look like: the promises between core and the plugin folders."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison
    from msprobe.core.recorder import Recorder
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


class Reducer(Protocol):
    """The device side of the recorder: turns tensors of one framework into rows of numbers.

    ``measure`` must enqueue all work on the tensor's own device before it returns and must not wait for it;
    ``collect`` waits once and gives what was measured since the last call.
    """

    def describe(self, tensor: Any) -> Form: ...

    def measure(self, tensor: Any, what: frozenset[str]) -> int:
        """Starts measuring and gives the slot that the result will be found in by ``collect``."""
        ...

    def collect(self) -> Mapping[str, NDArray[Any]]:
        """Waits for everything measured since the last call and gives its columns, one row per slot."""
        ...


class Adapter(Protocol):
    """Watches models of one framework."""

    name: str

    def owns(self, model: object) -> bool:
        """Tells whether the model belongs to this framework, importing nothing."""
        ...

    def attach(self, model: object, recorder: Recorder, **options: Any) -> Callable[[], None]:
        """Starts watching and gives the function that stops it."""
        ...


class TensorSource(Protocol):
    """Reads saved tensors of one run."""

    def __call__(self, rank: int, seqs: Sequence[int]) -> Sequence[NDArray[Any]]: ...


PathLike = str | Path
