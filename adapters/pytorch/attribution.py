"""Tells which module call an operator belongs to, in forward, in backward and in recomputation.

In forward it is the innermost module being called. In backward it is the module call in which the forward operator
ran that created the autograd node being evaluated: nodes are numbered in order of creation, so the numbers at which
module calls began and ended cut them into intervals.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from msprobe.core.sites import Direction

if TYPE_CHECKING:
    from collections.abc import Iterable

#: ``torch._C._current_graph_task_id()`` outside of any backward pass.
NO_BACKWARD = -1


@dataclass(eq=False, slots=True)
class ModuleCall:
    """One call of one module, from its pre-hook to its hook; compared by identity.

    ``path`` is that of the module's node, ``node`` the recorder's number of it, ``call`` counts the calls of the
    module in this direction within the micro-step.
    """

    path: str
    node: int
    direction: Direction
    call: int
    micro_step: int
    #: The backward pass that the call runs in (a recomputation), else ``NO_BACKWARD``; filled in by ``enter``.
    graph_task: int = NO_BACKWARD


@dataclass(frozen=True, slots=True)
class Place:
    """Where an operator runs: direction, micro-step, and the module call it belongs to (None outside of modules)."""

    call: ModuleCall | None
    direction: Direction
    micro_step: int | None
    #: The parameter's module where a parameter's gradient is accumulated, with no module call known.
    path: str = ""


class Attribution:
    """Keeps the stack of module calls, and remembers which module call created which autograd nodes."""

    def enter(self, call: ModuleCall) -> None:
        """Begins a module call; to be called in the module's pre-hook, before any operator of the call runs."""
        raise NotImplementedError

    def exit(self, call: ModuleCall) -> None:
        """Ends a module call and every call inside it that was left without a hook.

        Early-stopping recomputation and exceptions skip hooks. A call that is not open is ignored.
        """
        raise NotImplementedError

    def current(self) -> ModuleCall | None:
        """Gives the innermost module call that is open on this thread."""
        raise NotImplementedError

    def own_parameters(self, parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Tells which module path owns which parameter, so that accumulation of gradients can be attributed."""
        raise NotImplementedError

    def place(self) -> Place:
        """Tells where the operator being dispatched belongs; to be called inside ``__torch_dispatch__``."""
        raise NotImplementedError

    def new_step(self) -> None:
        """Forgets the calls of earlier steps; to be called at the end of each step."""
        raise NotImplementedError
