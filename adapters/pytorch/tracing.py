"""Data-flow edges between sites, found by following storages through every operator of one step.

For each storage the tracer knows the *sources*: the sites that its content was computed from, with no other site in
between. ``docs/architecture.md`` has the rules.

How the module hooks use it, in a step that is traced (no compiled module in the model)::

    tracer = Tracer(recorder)
    mode = tracer.mode()                         # at level op and mix OpRecorder does this part
    install(mode)                                # modes.install / modes.uninstall: safe anywhere between operators

    pre-hook:      tracer.enter(call)            # after attribution.enter(call)
                   tracer.seen_parameter(site, parameter)        # each direct parameter and buffer, at each call
                   tracer.seen_input(site, tensor)
    forward hook:  tracer.seen_output(site, tensor)              # before tracer.exit
                   tracer.exit(call)             # before attribution.exit(call); with always_call=True
    tensor hooks:  tracer.seen_gradient(site, gradient, micro_step)
    update:        tracer.seen_update(site, parameter.grad)

No method raises, waits, changes a tensor or keeps one alive. A tensor without storage is followed by its identity.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, cast

from msprobe.adapters.pytorch.dynamo import UncompiledMode
from msprobe.adapters.pytorch.formulas import Formulas
from msprobe.adapters.pytorch.operators import operands_of, operator_of, outputs_of
from msprobe.adapters.pytorch.storages import Storages, plain_parts, stretch_of
from msprobe.core.graph import EdgeSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import torch

    from msprobe.adapters.pytorch.attribution import ModuleCall
    from msprobe.adapters.pytorch.operators import Operands, Operator
    from msprobe.adapters.pytorch.parallel.layouts import Layouts
    from msprobe.core.recorder import Recorder

#: A storage keeps at most this many sources, the most recent ones.
MAX_SOURCES = 64
#: A source is a site in a micro-step: one number, the micro-step above these bits.
_SITE_BITS = 32
_SITE_MASK = (1 << _SITE_BITS) - 1

Sources = frozenset[int]
_NONE: Sources = frozenset()
P = ParamSpec("P")


def _quietly(method: Callable[Concatenate[Tracer, P], None]) -> Callable[Concatenate[Tracer, P], None]:
    """Makes a method that never raises; what it missed is an event."""

    @functools.wraps(method)
    def call(self: Tracer, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - law 6: a recorder never raises into the user's step
            self.recorder.event("gap", f"data flow was lost: {type(error).__name__}: {error}")

    return cast("Callable[Concatenate[Tracer, P], None]", call)


class Tracer:
    """Follows what tensors are computed from, and gives the recorder the edges between sites."""

    def __init__(self, recorder: Recorder, storages: Storages | None = None) -> None:
        self.storages = Storages() if storages is None else storages
        self.recorder = recorder
        #: Follows how tensors are spread over ranks, on a mesh of several.
        self.layouts: Layouts | None = None
        self._threads = threading.local()
        self._clock = 0
        #: When each source was last seen.
        self._seen_at: dict[int, int] = {}
        self._interned: dict[Sources, Sources] = {}

    def mode(self) -> UncompiledMode:
        """Gives the dispatch mode that follows operators at level module."""
        return _TracingMode(self)

    @_quietly
    def enter(self, call: ModuleCall) -> None:
        """Begins a module call."""
        self._clock += 1
        self._frames().append(_Frame(call, self._clock))

    @_quietly
    def exit(self, call: ModuleCall) -> None:
        """Ends a module call, and calls inside it that were left without a hook."""
        frames = self._frames()
        for i in range(len(frames) - 1, -1, -1):
            if frames[i].call is call:
                del frames[i:]
                return

    @_quietly
    def seen_input(self, site: int, tensor: torch.Tensor) -> None:
        """Draws edges from the tensor's sources to an input of the innermost open call.

        The storage keeps its sources, unless it has none: then this site is where it entered the model.
        """
        frame = self._frame()
        source = self._source(site, frame.call.micro_step if frame else self.recorder.micro_step)
        sources = self._sources((tensor,), depth=2)
        self._draw(sources, source)
        if frame is not None:
            frame.inputs.append((source, sources))
        if not sources:
            self._label(tensor, source)

    @_quietly
    def seen_parameter(self, site: int, tensor: torch.Tensor) -> None:
        """Makes the site of a parameter or buffer the source of its storage."""
        frame = self._frame()
        source = self._source(site, frame.call.micro_step if frame else self.recorder.micro_step)
        if frame is not None:
            frame.parameters.append(source)
        self._label(tensor, source)

    @_quietly
    def seen_output(self, site: int, tensor: torch.Tensor) -> None:
        """Draws edges to an output of the innermost open call and makes the site the tensor's source.

        A source outside of the call is replaced by those of the call's own inputs that it reached. What compiled or
        foreign code made counts as made from all inputs and parameters of the call.
        """
        frame = self._frame()
        source = self._source(site, frame.call.micro_step if frame else self.recorder.micro_step)
        if frame is None:
            self._draw(self._sources((tensor,)), source)
        else:
            self._draw(self._within(frame, self._sources((tensor,))), source)
        self._label(tensor, source)

    @_quietly
    def seen_gradient(self, site: int, tensor: torch.Tensor, micro_step: int | None = None) -> None:
        """Draws edges to a gradient (direction backward, any role) and makes the site its source.

        ``micro_step`` is the one in which the forward ran; None is the recorder's present one.
        """
        source = self._source(site, self.recorder.micro_step if micro_step is None else micro_step)
        self._draw(self._sources((tensor,)), source)
        self._label(tensor, source)

    @_quietly
    def seen_update(self, site: int, tensor: torch.Tensor) -> None:
        """Draws edges to an accumulated gradient from the gradients of all micro-steps of this step."""
        for source in self._sources((tensor,)):
            self.recorder.edge(source & _SITE_MASK, site, EdgeSource.TRACED)

    @_quietly
    def seen_operator(
        self,
        operator: Operator,
        inputs: Sequence[tuple[int, torch.Tensor]],
        outputs: Iterable[tuple[int, torch.Tensor]],
        micro_step: int,
    ) -> None:
        """Draws the edges of an operator whose inputs and outputs are sites of their own.

        A result that is the very elements of an operand (``view``, ``detach``) keeps the operand's sources.
        To be called after the operator ran, with ``seen_operand`` called for each input before.
        """
        reached = [] if operator.is_constant else [self._source(site, micro_step) for site, _ in inputs]
        read = {(id(self.storages.of(part)), stretch_of(part)) for _, tensor in inputs for part in plain_parts(tensor)}
        for site, tensor in outputs:
            source = self._source(site, micro_step)
            self._draw(reached, source)
            part = plain_parts(tensor)[0]
            if operator.mutated or (id(self.storages.of(part)), stretch_of(part)) not in read:
                self._label(tensor, source, keeps_rest=bool(operator.mutated))

    @_quietly
    def seen_operand(self, site: int, tensor: torch.Tensor, micro_step: int) -> None:
        """Draws edges to an operator's input, before the operator runs."""
        source = self._source(site, micro_step)
        sources = self._sources((tensor,))
        self._draw(sources, source)
        if not sources:
            self._label(tensor, source)

    @_quietly
    def follow(
        self, operator: Operator, operands: list[tuple[str, torch.Tensor]], outputs: list[tuple[str, torch.Tensor]]
    ) -> None:
        """Follows an operator that has no sites: its outputs come from what its operands came from."""
        read = [tensor for name, tensor in operands if name not in operator.overwritten]
        sources = _NONE if operator.is_constant else self._sources(read)
        known = {id(self.storages.of(part)): tensor for _, tensor in operands for part in plain_parts(tensor)}
        for name, tensor in operands:
            if name.partition(".")[0] in operator.mutated:
                self._write(tensor, sources, replaces=name in operator.overwritten)
        for _, tensor in outputs:
            for part in plain_parts(tensor):
                storage = self.storages.of(part)
                origin = known.get(id(storage))
                if origin is None:
                    storage.sources, storage.labels = sources, None
                elif storage.labels is not None and not operator.mutated:
                    storage.labels[stretch_of(part)] = self._sources((origin,))

    @_quietly
    def follow_layout(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Follows how the outputs of an operator are spread over ranks."""
        if self.layouts is not None:
            self.layouts.ran(func, args, kwargs, result)

    def new_step(self) -> None:
        """Forgets everything; to be called at the end of the traced step."""
        if self.layouts is not None:
            self.layouts.stop()
        self.storages.clear()
        self._threads = threading.local()
        self._seen_at.clear()
        self._interned.clear()

    def _frames(self) -> list[_Frame]:
        frames: list[_Frame] | None = getattr(self._threads, "frames", None)
        if frames is None:
            frames = self._threads.frames = []
        return frames

    def _frame(self) -> _Frame | None:
        frames = self._frames()
        return frames[-1] if frames else None

    def _source(self, site: int, micro_step: int) -> int:
        source = (micro_step << _SITE_BITS) | site
        self._clock += 1
        self._seen_at[source] = self._clock
        return source

    def _sources(self, tensors: Iterable[torch.Tensor], *, depth: int = 1) -> Sources:
        """Unites what tensors were computed from; the usual case of one set for all costs no union.

        ``depth`` counts the open call that computed them, from the innermost one.
        """
        united = _NONE
        for tensor in tensors:
            for part in plain_parts(tensor):
                storage = self.storages.of(part)
                found = storage.sources if storage.labels is None else storage.sources_of(stretch_of(part))
                if found is None:
                    found = storage.sources = self._sources_of_unseen(tensor, depth)
                if found and found is not united:
                    united = self._unite(united, found) if united else found
        return united

    def _sources_of_unseen(self, tensor: torch.Tensor, depth: int) -> Sources | None:
        """Gives the inputs and parameters of the open call for what compiled or foreign code computed in it."""
        frames = self._frames()
        if len(frames) < depth or tensor.grad_fn is None:
            return None
        frame = frames[-depth]
        self.recorder.event("gap", "computed by code whose operators are not seen: all inputs count as its sources")
        return frozenset((*(site for site, _ in frame.inputs), *frame.parameters))

    def _unite(self, one: Sources, other: Sources) -> Sources:
        both = one | other
        if len(both) > MAX_SOURCES:
            self.recorder.event("gap", f"more than {MAX_SOURCES} sources of one tensor: the most recent are kept")
            both = frozenset(sorted(both, key=lambda source: -self._seen_at.get(source, 0))[:MAX_SOURCES])
        return self._interned.setdefault(both, both)

    def _label(self, tensor: torch.Tensor, source: int, *, keeps_rest: bool = False) -> None:
        """Makes a site the only source of a tensor; with ``keeps_rest`` one more source of what overlaps it."""
        only = frozenset((source,))
        for part in plain_parts(tensor):
            storage = self.storages.of(part)
            stretch = stretch_of(part)
            if storage.sources is None or (storage.labels is None and _covers(part, stretch, storage.nbytes)):
                storage.sources = only
                continue
            if keeps_rest:
                self._add(storage, only)
            if storage.labels is None:
                storage.labels = {}
            storage.labels[stretch] = only

    def _write(self, tensor: torch.Tensor, sources: Sources, *, replaces: bool) -> None:
        for part in plain_parts(tensor):
            storage = self.storages.of(part)
            if replaces and _covers(part, stretch_of(part), storage.nbytes):
                storage.sources, storage.labels = sources, None
            else:
                self._add(storage, sources)

    def _add(self, storage: Any, sources: Sources) -> None:
        storage.sources = self._unite(storage.sources or _NONE, sources)
        if storage.labels is not None:
            storage.labels = {stretch: self._unite(label, sources) for stretch, label in storage.labels.items()}

    def _draw(self, sources: Iterable[int], target: int) -> None:
        """Draws an edge from each source in the target's micro-step."""
        for source in sources:
            if source >> _SITE_BITS == target >> _SITE_BITS and source != target:
                self.recorder.edge(source & _SITE_MASK, target & _SITE_MASK, EdgeSource.TRACED)

    def _within(self, frame: _Frame, sources: Sources) -> Iterable[int]:
        inside: dict[int, None] = {}
        for source in sources:
            if self._seen_at.get(source, 0) >= frame.start:
                inside[source] = None
                continue
            carriers = [site for site, carried in frame.inputs if source in carried]
            inside.update(dict.fromkeys(carriers or [source]))
        return inside


class _Frame:
    """A module call under way: when it began, and its inputs with what they were computed from."""

    __slots__ = ("call", "inputs", "parameters", "start")

    def __init__(self, call: ModuleCall, start: int) -> None:
        self.call = call
        self.start = start
        self.inputs: list[tuple[int, Sources]] = []
        self.parameters: list[int] = []


class _TracingMode(UncompiledMode):
    """Runs every operator unchanged and lets the tracer follow it."""

    supports_higher_order_operators = True

    def __init__(self, tracer: Tracer) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tracer = tracer
        self._formulas = Formulas(self, lambda operator, operands: (operator, operands), self._follow)

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Lets compiled functions run compiled; a mode without this makes them run eager, for good if it was first."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        operator = operator_of(func)
        operands = operands_of(operator, args, kwargs)
        outputs = outputs_of(result)
        self._tracer.follow(operator, operands.tensors, outputs)
        self._tracer.follow_layout(func, args, kwargs, result)
        self._formulas.ran(operator, [tensor for _, tensor in outputs])
        return result

    def _follow(self, under_way: tuple[Operator, Operands], gradients: list[torch.Tensor]) -> None:
        operator, operands = under_way
        self._tracer.follow(operator, operands.tensors, [("", gradient) for gradient in gradients])


def _covers(tensor: torch.Tensor, stretch: tuple[int, ...], nbytes: int) -> bool:
    """Tells whether a tensor is all of its storage, in order."""
    return stretch == (0, tensor.numel()) and tensor.numel() * tensor.element_size() == nbytes
