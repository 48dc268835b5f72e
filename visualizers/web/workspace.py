"""What is opened: two runs, one, or a comparison that was saved; and each reader's own view of it."""

from __future__ import annotations

import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.core.errors import MsprobeError
from msprobe.visualizers.web.edits import Edit, EditError, Edits, MappingText
from msprobe.visualizers.web.graph_view import BY_HAND
from msprobe.visualizers.web.overview import overview
from msprobe.visualizers.web.selection import PairIndex
from msprobe.visualizers.web.trends import Trends

if TYPE_CHECKING:
    from msprobe.core.comparison import Comparison

#: How many readers' own views are kept; who comes back later is judged again.
_MOST_VIEWS = 8


@dataclass
class View:
    """A comparison with its index and its overview, made once."""

    comparison: Comparison
    index: PairIndex = field(init=False)
    overview: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.index = PairIndex(self.comparison)
        self.overview = overview(self.comparison, self.index)
        self.index.prepare_search()


class Workspace:
    """Everything that the pages are about. Safe to use from several threads.

    Args:
        comparison: What is shown; None when one run alone is open.
        runs: The runs whose trends are shown.
        judge: Compares the runs again under a mapping file; without it nothing can be matched by hand.
        mapping: The mapping file that the comparison was made with.
        save_to: Where the reader may save the mapping; nothing else is ever written.
    """

    def __init__(
        self,
        comparison: Comparison | None,
        *,
        runs: Sequence[Path] = (),
        judge: Callable[[Path], Comparison] | None = None,
        mapping: Path | None = None,
        save_to: Path | None = None,
    ) -> None:
        self._view = View(comparison) if comparison is not None else None
        self.trends = Trends(runs)
        self._judge = judge
        self._text = MappingText(mapping)
        self.save_to = save_to
        self._lock = threading.Lock()
        self._judging = threading.Lock()
        self._views: OrderedDict[tuple[Edit, ...], View] = OrderedDict()
        self._edits: dict[str, Edits] = {}

    @property
    def can_match(self) -> bool:
        """Whether nodes can be matched by hand: the runs must be there to be judged again."""
        return self._judge is not None and self._text.is_editable

    @property
    def pages(self) -> tuple[str, ...]:
        """The pages that there is something to show on."""
        return (*(("overview", "graph") if self._view is not None else ()), *(("trend",) if self.trends.runs else ()))

    def view(self, session: str) -> View:
        """Gives what one reader sees.

        Raises:
            MsprobeError: One run alone is open: nothing is compared.
        """
        if self._view is None:
            raise MsprobeError("one run is open; nothing is compared.")
        now = self.edits(session).now
        return self._judged(now) if now else self._view

    def edits(self, session: str) -> Edits:
        """Gives what one reader matched by hand."""
        with self._lock:
            return self._edits.get(session, Edits())

    def change(self, session: str, edits: Edits) -> View:
        """Judges under a reader's edits and keeps them, if the runs can be compared so.

        Raises:
            MsprobeError: The runs cannot be compared so; what was before still holds.
        """
        if not self.can_match:
            raise EditError("nothing can be matched here: the runs of a saved comparison are not open.")
        view = self._judged(edits.now) if edits.now else self.view("")
        with self._lock:
            self._edits[session] = edits
        return view

    def text(self, session: str) -> str:
        """Gives the mapping file as one reader's edits make it."""
        return self._text.write(self.edits(session))

    def before(self) -> str:
        """Gives the mapping file without edits, in the same form."""
        return self._text.write(Edits())

    def save(self, session: str) -> Path:
        """Writes the mapping file of one reader to the place that was named when the pages were opened.

        Raises:
            EditError: No place was named, or it cannot be written.
        """
        if self.save_to is None:
            raise EditError("no file was named to save to: start msprobe view with --save layers.yaml.")
        beside = self.save_to.with_name(f".{self.save_to.name}.part")
        try:
            beside.write_text(self.text(session), encoding="utf-8")
            beside.replace(self.save_to)
        except OSError as error:
            raise EditError(f"{self.save_to}: cannot be written: {error.strerror or error}.") from error
        return self.save_to

    def _judged(self, edits: tuple[Edit, ...]) -> View:
        with self._lock:
            if edits in self._views:
                self._views.move_to_end(edits)
                return self._views[edits]
        assert self._judge is not None
        with self._judging, tempfile.TemporaryDirectory(prefix="msprobe-") as folder:
            file = Path(folder) / BY_HAND
            file.write_text(self._text.write(Edits(edits, len(edits))), encoding="utf-8")
            view = View(self._judge(file))
        with self._lock:
            self._views[edits] = view
            while len(self._views) > _MOST_VIEWS:
                self._views.popitem(last=False)
        return view
