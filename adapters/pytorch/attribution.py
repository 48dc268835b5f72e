"""Tells which module call an operator belongs to, in forward, in backward and in recomputation.

In forward it is the innermost module being called. In backward it is the module call in which the forward operator
ran that created the autograd node being evaluated: nodes are numbered in order of creation, so the numbers at which
module calls began and ended cut them into intervals.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from msprobe.core.sites import Direction

if TYPE_CHECKING:
    from collections.abc import Iterable

#: ``torch._C._current_graph_task_id()`` outside of any backward pass.
NO_BACKWARD = -1
#: Autograd nodes that no operator of a forward created (accumulation of gradients) carry a number from here on.
_NO_SEQUENCE = 2**63


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


class Place(NamedTuple):
    """Where an operator runs: direction, module path (None outside of modules) and micro-step where known."""

    path: str | None
    direction: Direction
    micro_step: int | None


class Attribution:
    """Keeps the stack of module calls, and remembers which module call created which autograd nodes."""

    def __init__(self) -> None:
        self._threads: dict[int, _Thread] = {}
        self._owners: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}
        #: By backward pass: whether it builds a graph itself, and the micro-step last met in it.
        self._double: dict[int, bool] = {}
        self._micro_steps: dict[int, int] = {}

    def enter(self, call: ModuleCall) -> None:
        """Begins a module call; to be called in the module's pre-hook, before any operator of the call runs."""
        call.graph_task = torch._C._current_graph_task_id()
        thread = self._thread()
        if call.graph_task == NO_BACKWARD:
            self._forget_recomputation(thread)
        thread.calls.append(call)
        thread.mark()

    def exit(self, call: ModuleCall) -> None:
        """Ends a module call and every call inside it that was left without a hook.

        Early-stopping recomputation and exceptions skip hooks. A call that is not open is ignored.
        """
        thread = self._thread()
        if call in thread.calls:
            del thread.calls[thread.calls.index(call) :]
            thread.mark()

    def current(self) -> ModuleCall | None:
        """Gives the innermost module call that is open on this thread."""
        calls = self._thread().calls
        return calls[-1] if calls else None

    def own_parameters(self, parameters: Iterable[tuple[str, torch.Tensor]]) -> None:
        """Tells the module path of each parameter, so that accumulation of gradients can be attributed."""
        for path, parameter in parameters:
            self._owners.setdefault(id(parameter), (weakref.ref(parameter), path))

    def place(self) -> Place:
        """Tells where the operator being dispatched belongs; to be called inside ``__torch_dispatch__``."""
        task = torch._C._current_graph_task_id()
        thread = self._thread()
        top = thread.calls[-1] if thread.calls else None
        if top is not None and top.graph_task == task:
            return Place(top.path, top.direction, top.micro_step)
        if task == NO_BACKWARD:
            return Place(None, Direction.FORWARD, None)
        return self._place_in_backward(task, thread)

    def new_step(self) -> None:
        """Forgets the calls of earlier steps; to be called at the end of each step."""
        open_threads = {ident: t for ident, t in self._threads.items() if t.calls}
        self._threads = open_threads
        self._double.clear()
        self._micro_steps.clear()

    def _thread(self) -> _Thread:
        ident = threading.get_ident()
        thread = self._threads.get(ident)
        if thread is None:
            thread = self._threads[ident] = _Thread()
        return thread

    def _forget_recomputation(self, forward: _Thread) -> None:
        """Drops what other threads recomputed: autograd numbers the nodes of each thread on their own."""
        for ident, thread in list(self._threads.items()):
            if thread is not forward and thread.only_recomputes and not thread.calls:
                del self._threads[ident]

    def _place_in_backward(self, task: int, thread: _Thread) -> Place:
        node = torch._C._current_autograd_node()
        is_double = self._double.setdefault(task, torch.is_grad_enabled())
        recomputes = torch.is_grad_enabled() and not is_double
        direction = Direction.RECOMPUTE if recomputes else Direction.BACKWARD
        if node is None:
            return Place(None, direction, self._micro_steps.get(task))
        number = node._sequence_nr()
        if number >= _NO_SEQUENCE:
            return Place(self._owner(node), direction, self._micro_steps.get(task))
        call = self._call_that_made(number, task, thread)
        if call is None:
            return Place(None, direction, self._micro_steps.get(task))
        self._micro_steps[task] = call.micro_step
        if recomputes:
            thread.adopt(call)
        return Place(call.path, direction, call.micro_step)

    def _call_that_made(self, number: int, task: int, thread: _Thread) -> ModuleCall | None:
        call = thread.call_at(number)
        if call is not None and call.graph_task < task:
            return call
        for other in self._threads.values():
            if other is not thread and not other.only_recomputes:
                call = other.call_at(number)
                if call is not None:
                    return call
        return None

    def _owner(self, node: Any) -> str | None:
        variable = getattr(node, "variable", None)
        reference, path = self._owners.get(id(variable), (None, None))
        return path if reference is not None and reference() is variable else None


class _Thread:
    """The open calls of one thread, and from which autograd node on which call was the innermost."""

    __slots__ = ("calls", "only_recomputes", "owners", "starts")

    def __init__(self) -> None:
        self.calls: list[ModuleCall] = []
        self.starts: list[int] = []
        self.owners: list[ModuleCall | None] = []
        self.only_recomputes = True

    def mark(self) -> None:
        owner = self.calls[-1] if self.calls else None
        if owner is not None and owner.graph_task == NO_BACKWARD:
            self.only_recomputes = False
        start = torch.autograd._get_sequence_nr()
        if self.starts and self.starts[-1] == start:
            self.owners[-1] = owner
        else:
            self.starts.append(start)
            self.owners.append(owner)

    def adopt(self, owner: ModuleCall) -> None:
        """Notes that a call recomputes outside of any module call, from the operator under way on."""
        if not self.owners or self.owners[-1] is not None:
            return
        start = max(torch.autograd._get_sequence_nr() - 1, self.starts[-1])
        if start == self.starts[-1]:
            self.owners[-1] = owner
        else:
            self.starts.append(start)
            self.owners.append(owner)

    def call_at(self, number: int) -> ModuleCall | None:
        i = bisect_right(self.starts, number) - 1
        return self.owners[i] if i >= 0 else None
