"""What a rank must offer to be matched and judged: as recorded, merged of several ranks, or seen in another way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from msprobe.core.run.batch import Event, Fact
    from msprobe.core.run.catalogue import SiteTable
    from msprobe.core.sites import Form, Node


class RankView(Protocol):
    """The catalogue and the records of one rank; ``core.run.reader.RankRun`` says what each member means.

    A view may also have ``reasons``: why a record has no numbers, by its row.
    """

    @property
    def nodes(self) -> Sequence[Node]: ...

    @property
    def sites(self) -> SiteTable: ...

    @property
    def forms(self) -> Sequence[Form]: ...

    @property
    def edges(self) -> NDArray[np.int64]: ...

    @property
    def facts(self) -> Sequence[Fact]: ...

    @property
    def events(self) -> Sequence[Event]: ...

    @property
    def records(self) -> dict[str, NDArray[Any]]: ...

    def tensor(self, index: int) -> NDArray[Any] | None: ...

    def content_vectors(self, index: int) -> tuple[NDArray[np.uint64], NDArray[np.uint64]] | None: ...

    def row_statistics(self, index: int) -> Mapping[str, NDArray[Any]] | None: ...
