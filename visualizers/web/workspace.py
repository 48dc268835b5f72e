"""What is opened: two runs, or a comparison that was saved; and each reader's own view of it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.visualizers.web.overview import overview
from msprobe.visualizers.web.selection import PairIndex

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

    def __init__(self, comparison: Comparison, *, judge: Callable[[Path], Comparison] | None = None) -> None:
        self._view = View(comparison)
        self._judge = judge
        self._lock = threading.Lock()
        self._views: OrderedDict[str, View] = OrderedDict()

    @property
    def can_match(self) -> bool:
        """Whether nodes can be matched by hand: the runs must be there to be judged again."""
        return self._judge is not None

    def view(self, session: str) -> View:
        """Gives what one reader sees."""
        with self._lock:
            return self._views.get(session, self._view)
