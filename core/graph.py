"""The graph IR: nodes contain nodes (``Node.parent``), and edges carry data from site to site."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msprobe.core.sites import Site


class EdgeSource(str, Enum):
    """How a data-flow edge came to be known."""

    #: Seen by following storages through every operator of one traced step.
    TRACED = "traced"
    #: Both sites saw the same tensor while a reference to it was held.
    IDENTITY = "identity"


@dataclass(frozen=True, slots=True)
class Edge:
    """The tensor at ``target`` was computed from the tensor at ``source``, with no other site in between.

    An output's sources are the inputs and parameters of its own node, or sites inside it; an input's
    sources are the outputs it came from. What was computed between a source and an *input* site is the
    own code of the input's parent container.
    Edges hold within one micro-step. Edges between steps (gradient to next step's parameter) are implied.
    """

    source: Site
    target: Site
    known_by: EdgeSource = EdgeSource.TRACED
