"""What is opened: two runs, or a comparison that was saved; and each reader's own view of it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.core.errors import MsprobeError
from msprobe.visualizers.web.overview import overview
from msprobe.visualizers.web.selection import PairIndex
from msprobe.visualizers.web.trends import Trends

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison


@dataclass
class View:
    """A comparison with its index and its overview, made once."""

    comparison: Comparison
    index: PairIndex = field(init=False)
    overview: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.index = PairIndex(self.comparison)
        self.overview = overview(self.comparison, self.index)


class Workspace:
    """Everything that the pages are about. Safe to use from several threads."""

    def __init__(
        self,
        comparison: Comparison | None,
        *,
        runs: Sequence[Path] = (),
        judge: Callable[[Path], Comparison] | None = None,
    ) -> None:
        self._view = View(comparison) if comparison is not None else None
        self.trends = Trends(runs)
        self._judge = judge
        self._lock = threading.Lock()
        self._views: OrderedDict[str, View] = OrderedDict()

    @property
    def can_match(self) -> bool:
        """Whether nodes can be matched by hand: the runs must be there to be judged again."""
        return self._judge is not None

    @property
    def pages(self) -> tuple[str, ...]:
        """The pages that there is something to show on."""
        return (*(("overview", "graph") if self._view is not None else ()), *(("trend",) if self.trends.runs else ()))

    def view(self, session: str) -> View:
        """Gives what one reader sees.

        Raises:
            MsprobeError: One run alone is open: nothing is compared.
        """
        with self._lock:
            found = self._views.get(session, self._view)
        if found is None:
            raise MsprobeError("one run is open; nothing is compared.")
        return found
