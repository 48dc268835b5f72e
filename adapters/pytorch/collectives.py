"""Records collectives over ranks: what each is given before it runs, and what it gives when it is complete.

The functions of ``torch.distributed`` are wrapped while a recording asks for it. An asynchronous one gives back its
``Work``, whose ``wait`` records the results: before, they are not there. What is not seen: functions that a program has
imported by name before, collectives in C++ (``DistributedDataParallel``; its result is recorded as reduced gradients),
and functional ones.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from msprobe.adapters.pytorch.guard import guarded
from msprobe.core.sites import Direction, NodeKind, Role

if TYPE_CHECKING:
    from msprobe.adapters.pytorch.attribution import Attribution
    from msprobe.adapters.pytorch.guard import Failures
    from msprobe.adapters.pytorch.observing import Observer

#: Parameters that hold what goes in and what comes out, by function.
WATCHED: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "all_reduce": (("tensor",), ("tensor",)),
    "broadcast": (("tensor",), ("tensor",)),
    "reduce": (("tensor",), ("tensor",)),
    "all_gather": (("tensor",), ("tensor_list",)),
    "all_gather_into_tensor": (("input_tensor",), ("output_tensor",)),
    "reduce_scatter": (("input_list",), ("output",)),
    "reduce_scatter_tensor": (("input",), ("output",)),
    "all_to_all": (("input_tensor_list",), ("output_tensor_list",)),
    "all_to_all_single": (("input",), ("output",)),
}
#: Send objects by tensors of bytes: nothing to watch.
_OF_OBJECTS: Final = ("all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list")
_MOST_RANKS: Final = 64


@dataclass(eq=False, slots=True)
class _Call:
    """One collective under way."""

    path: str
    node: int
    direction: Direction
    number: int
    micro_step: int
    what: frozenset[str]
    results: list[tuple[str, torch.Tensor]]


class Collectives:
    """Wraps the functions, and records their calls while ``active`` says so."""

    def __init__(
        self,
        observer: Observer,
        attribution: Attribution,
        failures: Failures,
        active: Callable[[], bool],
        *,
        on: bool,
    ) -> None:
        self.failures = failures
        self._observer, self._recorder = observer, observer.recorder
        self._attribution, self._active = attribution, active
        self._calls: Counter[tuple[int, Direction, int]] = Counter()
        self._inside = threading.local()
        self._undo: list[Callable[[], None]] = []
        if on and torch.distributed.is_available():
            for name in WATCHED:
                self._wrap(name, self._watched(name))
            for name in _OF_OBJECTS:
                self._wrap(name, self._quiet)

    def end_step(self) -> None:
        """Counts calls afresh."""
        self._calls.clear()

    def remove(self) -> None:
        """Puts the functions back."""
        while self._undo:
            self._undo.pop()()

    def _wrap(self, name: str, around: Callable[[Any], Any]) -> None:
        original = getattr(torch.distributed, name, None)
        if original is None:
            return
        replacement = around(original)
        for owner in (torch.distributed, torch.distributed.distributed_c10d):
            if getattr(owner, name, None) is original:
                setattr(owner, name, replacement)
                self._undo.append(functools.partial(_restore, owner, name, replacement, original))

    def _quiet(self, original: Any) -> Any:
        @functools.wraps(original)
        def call(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or getattr(self._inside, "on", False):
                return original(*args, **kwargs)
            self._inside.on = True
            try:
                return original(*args, **kwargs)
            finally:
                self._inside.on = False

        return call

    def _watched(self, name: str) -> Callable[[Any], Any]:
        def around(original: Any) -> Any:
            signature = inspect.signature(original)
            quiet = self._quiet(original)

            @functools.wraps(original)
            def call(*args: Any, **kwargs: Any) -> Any:
                if torch.compiler.is_compiling() or getattr(self._inside, "on", False) or not self._active():
                    return original(*args, **kwargs)
                begun = self.begin(name, signature, args, kwargs)
                work = quiet(*args, **kwargs)
                if begun is None:
                    return work
                if work is None:
                    self.end(begun)
                    return None
                return WatchedWork(work, functools.partial(self.end, begun))

            return call

        return around

    @guarded
    def begin(self, name: str, signature: inspect.Signature, args: Any, kwargs: Any) -> _Call | None:
        """Records what a collective is given."""
        bound = signature.bind(*args, **kwargs).arguments
        group = bound.get("group")
        if torch.distributed.get_rank(group) < 0:
            return None
        place = self._attribution.place()
        path = f"{'outside' if place.path is None else place.path}/{name}{_of_group(group)}"
        node = self._recorder.node(path, NodeKind.COLLECTIVE, name, place.path, f"torch.distributed.{name}")
        what = self._recorder.wants(node)
        if not what:
            return None
        micro_step = self._recorder.micro_step if place.micro_step is None else place.micro_step
        key = (node, place.direction, micro_step)
        given, taken = (_tensors(bound, names) for names in WATCHED[name])
        call = _Call(path, node, place.direction, self._calls[key], micro_step, what, taken)
        self._calls[key] += 1
        self._recorder.fact(node, "collective", "setting", _setting(bound, group))
        source = bound.get("src", bound.get("group_src"))
        if name != "broadcast" or source is None or source == torch.distributed.get_rank():
            self._record(call, Role.INPUT, given)
        return call

    @guarded
    def end(self, call: _Call) -> None:
        """Records what a collective has given, now that it is complete."""
        for _, tensor in call.results:
            self._observer.seen.forget(tensor)  # written in place, which its version counter may not tell
        if not self._recorder.recording:
            return
        self._record(call, Role.OUTPUT, call.results)

    def _record(self, call: _Call, role: Role, tensors: list[tuple[str, torch.Tensor]]) -> None:
        for argument, tensor in tensors:
            site = self._recorder.site(call.node, call.direction, role, argument, call.number)
            self._recorder.observe(site, tensor, what=call.what, micro_step=call.micro_step)


class WatchedWork(torch._C._distributed_c10d.Work if torch.distributed.is_available() else object):  # type: ignore[misc]
    """Stands for the ``Work`` of an asynchronous collective; the first wait that succeeds records the results."""

    def __init__(self, work: Any, done: Callable[[], object]) -> None:
        super().__init__()
        self._work = work
        self._done: Callable[[], object] | None = done

    def wait(self, *args: Any, **kwargs: Any) -> Any:
        """Waits as the work does."""
        answer = self._work.wait(*args, **kwargs)
        self._finish()
        return answer

    def synchronize(self) -> Any:
        """Waits as the work does."""
        answer = self._work.synchronize()
        self._finish()
        return answer

    def _finish(self) -> None:
        done, self._done = self._done, None
        if done is not None:
            done()

    def __getattribute__(self, name: str) -> Any:
        if name in _OWN:
            return super().__getattribute__(name)
        return getattr(super().__getattribute__("_work"), name)


_OWN: Final = frozenset({"wait", "synchronize", "_finish", "_work", "_done", "__class__", "__dict__"})


def _restore(owner: Any, name: str, replacement: Any, original: Any) -> None:
    if getattr(owner, name) is replacement:
        setattr(owner, name, original)


def _tensors(bound: dict[str, Any], names: tuple[str, ...]) -> list[tuple[str, torch.Tensor]]:
    found: list[tuple[str, torch.Tensor]] = []
    for name in names:
        value = bound.get(name)
        if isinstance(value, torch.Tensor):
            found.append((name, value))
        elif isinstance(value, list | tuple):
            found += [(f"{name}.{i}", tensor) for i, tensor in enumerate(value) if isinstance(tensor, torch.Tensor)]
    return found


def _of_group(group: Any) -> str:
    """Names a group in the same way on all of its ranks; nothing for that of all ranks."""
    size = torch.distributed.get_world_size(group)
    if group is None or size == torch.distributed.get_world_size():
        return ""
    described = str(getattr(group, "group_desc", "") or "")
    return f"@{described}" if described not in ("", "undefined") else f"@{size}"


def _setting(bound: dict[str, Any], group: Any) -> dict[str, Any]:
    """Gives ranks, reduce operation, whether it is asynchronous, and whether it does nothing: a group of one."""
    ranks = torch.distributed.get_process_group_ranks(group or torch.distributed.group.WORLD)
    operation = bound.get("op")
    return {
        "ranks": ranks[:_MOST_RANKS],
        "size": len(ranks),
        "reduce": str(operation).rpartition(".")[2] if operation is not None else "",
        "asynchronous": bool(bound.get("async_op", False)),
        "no_op": len(ranks) == 1,
        **({"source": bound["src"]} if bound.get("src") is not None else {}),
    }
