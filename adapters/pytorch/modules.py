"""Watches the calls of modules through forward hooks, on recorded steps only."""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import torch

from msprobe.adapters.pytorch.attribution import ModuleCall
from msprobe.adapters.pytorch.compiled import CompiledCall, alters_fast_path, has_compiled, is_compiled
from msprobe.adapters.pytorch.gradients import GradientPlace
from msprobe.adapters.pytorch.guard import guarded
from msprobe.adapters.pytorch.module_hooks import AfterCall, BeforeCall
from msprobe.adapters.pytorch.nodes import WatchedModule, declare, has_forward, named_modules
from msprobe.adapters.pytorch.parallel.pipeline import stage_call
from msprobe.adapters.pytorch.stacks import python_stack
from msprobe.adapters.pytorch.structures import Place, call_places, plain, result_tensors
from msprobe.adapters.pytorch.token_inputs import tells_tokens
from msprobe.adapters.pytorch.wrappers import is_handed_on
from msprobe.core.sites import Direction, Role

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from msprobe.adapters.pytorch.attribution import Attribution
    from msprobe.adapters.pytorch.gradients import Gradients
    from msprobe.adapters.pytorch.guard import Failures
    from msprobe.adapters.pytorch.observing import Observer
    from msprobe.adapters.pytorch.parameters import Parameters
    from msprobe.core.options import RecordOptions

_CALL_IMPL = torch.nn.Module._call_impl.__code__
#: Raised by checkpointing to end a recomputation early; not a failure.
_EARLY_STOP = "_StopRecomputationError"


@dataclass(eq=False, slots=True)
class Frame:
    """A module call under way, and which exception was being handled when it began."""

    call: ModuleCall
    watched: WatchedModule
    exception: int
    stack: tuple[str, ...] | None


class ModuleWatcher:
    """Hooks the modules of one or more root modules and records what they are called with and give back."""

    def __init__(
        self,
        observer: Observer,
        gradients: Gradients,
        parameters: Parameters,
        attribution: Attribution,
        options: RecordOptions,
        failures: Failures,
    ) -> None:
        self.failures = failures
        #: Called before an outermost forward call of a watched module; gives whether the step is recorded.
        self.on_outermost: Callable[[WatchedModule], bool] = lambda watched: True
        #: Called with the shapes of the tensors that an outermost call gets.
        self.on_batch: Callable[[list[torch.Size]], object] = lambda shapes: None
        #: Called with a module that is watched, and the module that it lies in.
        self.on_declared: Callable[[WatchedModule, torch.nn.Module, torch.nn.Module | None], object] = _nothing
        #: Called with the result of an outermost forward call.
        self.on_result: Callable[[Any], object] = lambda output: None
        self._observer = observer
        self._recorder = observer.recorder
        self._gradients = gradients
        self._parameters = parameters
        self._attribution = attribution
        self._options = options
        self._records_calls = options.level != "op"
        self._roots: dict[str, torch.nn.Module] = {}
        self._watched: dict[int, WatchedModule] = {}
        self._modules: dict[int, torch.nn.Module] = {}
        self._numbers = count()
        self._handles: list[Any] = []
        #: How often hooks were put in place: whoever asks modules something may remember the answer till then.
        self.attachments = 0
        self._layout: list[tuple[str, int, bool, bool]] = []
        self._frames = threading.local()
        self._calls: Counter[tuple[int, Direction, int]] = Counter()
        self._leader: WatchedModule | None = None
        #: The micro-batch that a stage of a pipeline is called with.
        self._micro_batch: int | None = None
        self._process = os.getpid()
        self._reported_exception = 0
        self._has_compiled = False

    def use(self, options: RecordOptions) -> None:
        """Goes on with other options; called between steps."""
        self._options = options
        for watched in self._watched.values():
            watched.what = self._recorder.wants(watched.node)

    # -- what is watched

    def add_root(self, module: torch.nn.Module, prefix: str) -> None:
        """Adds a model; the paths of its modules begin with ``prefix``."""
        self._roots[prefix] = module

    def pairs(self) -> Iterator[tuple[WatchedModule, torch.nn.Module]]:
        """Gives every watched module with its node."""
        for number, watched in self._watched.items():
            yield watched, self._modules[number]

    def node_of(self, module: torch.nn.Module) -> int | None:
        """Gives the recorder's number of a watched module's node."""
        watched = self._watched.get(id(module))
        return None if watched is None else watched.node

    def parameter_ids(self) -> set[int]:
        """Gives the identities of all parameters of the roots."""
        return {id(parameter) for root in self._roots.values() for parameter in root.parameters()}

    @property
    def attached(self) -> bool:
        """Tells whether hooks are in place."""
        return bool(self._handles)

    def attach(self) -> bool:
        """Puts hooks on every module, afresh when the model has changed; tells whether it has."""
        found = [entry for prefix, root in self._roots.items() for entry in named_modules(root, prefix)]
        layout = [(path, id(module), unseen, is_compiled(module)) for path, module, unseen in found]
        if self._handles and layout == self._layout:
            return False
        self.detach()
        self._layout = layout
        self.attachments += 1
        self._has_compiled = has_compiled(list(self._roots.values()))
        self._declare(found)
        for watched, module in self.pairs():
            if not watched.unseen:
                self._hook(watched, module)
        return True

    def detach(self) -> None:
        """Takes every hook off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._layout = []

    def end_step(self) -> None:
        """Forgets the calls of the step, and notes modules that compiled functions may have hidden."""
        if self._calls and self._has_compiled:
            self._note_unseen()
        while self.frames:
            self._exit(self.frames.pop())
        self._calls.clear()
        self._leader = None

    @property
    def frames(self) -> list[Frame]:
        """The module calls under way on this thread, outermost first."""
        try:
            return self._frames.stack  # type: ignore[no-any-return]
        except AttributeError:
            self._frames.stack = []
            return self._frames.stack  # type: ignore[no-any-return]

    def _declare(self, found: list[tuple[str, torch.nn.Module, bool]]) -> None:
        paths: dict[int, list[str]] = {}
        by_path = {path: module for path, module, _ in found}
        for path, module, unseen in found:
            paths.setdefault(id(module), []).append(path)
            if len(paths[id(module)]) > 1:
                continue
            watched = self._watched.get(id(module))
            if watched is None:
                node = declare(self._recorder, path, module)
                watched = WatchedModule(path, node, next(self._numbers), self._recorder.wants(node))
                self._watched[id(module)], self._modules[id(module)] = watched, module
                self.on_declared(watched, module, by_path.get(path.rpartition(".")[0]))
            watched.compiled, watched.unseen = is_compiled(module), unseen
        for number in self._watched.keys() - paths.keys():
            del self._watched[number], self._modules[number]
        for number, names in paths.items():
            if len(names) > 1:
                self._recorder.fact(self._watched[number].node, "shared", "paths", names)

    @guarded
    def _hook(self, watched: WatchedModule, module: torch.nn.Module) -> None:
        if isinstance(module, torch.jit.ScriptModule):
            self._recorder.event("gap", "is a script, which takes no hooks: only parameters are recorded", watched.path)
            return
        if watched.compiled:
            self._recorder.event("gap", "runs compiled: only what goes in and comes out is recorded", watched.path)
        if watched.compiled and module.__dict__.get("_compiled_call_impl") is not None:
            self._handles.append(CompiledCall(module, watched, self.before, self.after))
            return

        before, after = BeforeCall(self.before, watched, module), AfterCall(self.after, watched, module)
        self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        self._handles.append(module.register_forward_hook(after, with_kwargs=True, always_call=True))

    def _note_unseen(self) -> None:
        called = {number for number, _, _ in self._calls}
        hooked: dict[str | None, bool] = {
            watched.path: watched.number in called
            for watched, module in self.pairs()
            if not watched.unseen and has_forward(module)
        }
        for path, was_called in hooked.items():
            if not was_called and hooked.get(_caller(path, hooked), False):
                message = "not seen in a step: it was not called, or lies inside a compiled function"
                self._recorder.event("gap", message, path or "")

    # -- calls

    @guarded
    def before(
        self, watched: WatchedModule, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        """Begins a call."""
        frames = self.frames
        if torch._C._get_tracing_state() is not None or (not frames and os.getpid() != self._process):
            return
        backward = torch._C._current_graph_task_id() != -1
        if frames and any(frame.watched is watched for frame in frames):
            self._drop_stale(watched, module)
        outermost = not frames
        if outermost and not backward and not self._begin_outermost(watched, module):
            return
        frame = self._enter(watched, Direction.RECOMPUTE if backward else Direction.FORWARD)
        frames.append(frame)
        if alters_fast_path(module):
            self._recorder.event("altered", "hooks switch off the fused fast path of this module", watched.path)
        self._parameters.record_values(watched, module, frame.call.micro_step)
        if watched.what:
            tensors, others = call_places(args, kwargs)
            if outermost:
                self.on_batch([tensor.shape for _, tensor in tensors])
            self.facts(watched, module, others)
            if self._options.inputs and self._records_calls:
                self.inputs(watched, frame, tensors, batch=outermost)

    @guarded
    def after(self, watched: WatchedModule, module: torch.nn.Module, output: Any) -> None:
        """Ends a call, and with it any call inside that ended without a hook."""
        frames = self.frames
        while frames and frames[-1].watched is not watched:
            if not any(frame.watched is watched for frame in frames):
                return
            self._exit(frames.pop())
        if not frames:
            return
        frame = frames[-1]
        error = sys.exc_info()[1]
        try:
            if error is not None and id(error) != frame.exception:
                self._failed(watched, error)
            elif watched.what and self._options.outputs and self._records_calls:
                self.outputs(watched, frame, output)
            if watched.derive is not None and watched.what and error is None:
                watched.derive(watched, frame.call, output)
            self._parameters.record_values(watched, module, frame.call.micro_step)
        finally:
            self._exit(frames.pop())
        if not frames and frame.call.direction is Direction.FORWARD:
            self.on_result(output)
            self._after_outermost(frame)

    def _begin_outermost(self, watched: WatchedModule, module: torch.nn.Module) -> bool:
        stage = stage_call(module)
        self._micro_batch = stage.micro_batch if stage is not None else None
        if stage is not None and stage.micro_batch is None:
            return False
        if not self.on_outermost(watched):
            return False
        if stage is not None:
            stage.note(self._recorder, watched)
            if self._observer.layouts is not None:
                self._observer.layouts.passes = stage.micro_batches
        if self._leader is None:
            self._leader = watched
        elif self._leader is watched:
            self._recorder.begin_micro_step()
            self._observer.seen.prune()
            if not torch.is_grad_enabled():
                self._calls.clear()
        self._parameters.watch_gradients(self.pairs())
        return True

    def _after_outermost(self, frame: Frame) -> None:
        """Records parameters of modules that are not called themselves, such as a projection used functionally."""
        if frame.watched.path in self._roots:
            for watched, module in self.pairs():
                self._parameters.record_values(watched, module, frame.call.micro_step)

    def _enter(self, watched: WatchedModule, direction: Direction) -> Frame:
        micro_step = self._recorder.micro_step
        if self._micro_batch is not None:
            micro_step = self._micro_batch
        if direction is Direction.RECOMPUTE:
            known = self._gradients.micro_step_of_backward()
            micro_step = micro_step if known is None else known
        key = (watched.number, direction, micro_step)
        call = ModuleCall(watched.path, watched.node, direction, self._calls[key], micro_step)
        self._calls[key] += 1
        self._attribution.enter(call)
        if self._observer.tracer is not None:
            self._observer.tracer.enter(call)
        stack = python_stack() if self._options.stacks and watched.what else None
        return Frame(call, watched, id(sys.exc_info()[1]), stack)

    def _exit(self, frame: Frame) -> None:
        if self._observer.tracer is not None:
            self._observer.tracer.exit(frame.call)
        self._attribution.exit(frame.call)

    @guarded
    def inputs(self, watched: WatchedModule, frame: Frame, tensors: list[Place], *, batch: bool) -> None:
        """Records the tensors that a module is called with; those of an outermost call, the batch, with checksums."""
        call, what = frame.call, watched.what | {"checksums"} if batch else watched.what
        if batch and self._observer.layouts is not None:
            self._observer.layouts.batch(tensor for _, tensor in tensors)
        for path, tensor in tensors:
            site = self._recorder.site(call.node, call.direction, Role.INPUT, path, call.call, frame.stack)
            kept = what | {"tensors"} if batch and tells_tokens(path, tensor) else what
            self._observer.activation(site, tensor, kept, call.micro_step)
            if self._observer.tracer is not None:
                self._observer.tracer.seen_input(site, tensor)
            if self._options.gradients and tensor.requires_grad and (batch or not is_handed_on(tensor)):
                place = GradientPlace(call.node, Direction.BACKWARD, Role.OUTPUT, path, call.call, watched.what)
                self._gradients.watch_input(tensor, watched.path, place, call.micro_step)

    @guarded
    def outputs(self, watched: WatchedModule, frame: Frame, output: Any) -> None:
        """Records the tensors that a module gives back."""
        call = frame.call
        for path, tensor in result_tensors(output):
            site = self._recorder.site(call.node, call.direction, Role.OUTPUT, path, call.call, frame.stack)
            self._observer.activation(site, tensor, watched.what, call.micro_step)
            if self._observer.tracer is not None:
                self._observer.tracer.seen_output(site, tensor)
            if self._options.gradients and tensor.requires_grad:
                place = GradientPlace(call.node, Direction.BACKWARD, Role.INPUT, path, call.call, watched.what)
                self._gradients.watch_output(tensor, watched.path, place, call.micro_step)

    @guarded
    def facts(self, watched: WatchedModule, module: torch.nn.Module, arguments: list[Place]) -> None:
        """Notes a module's settings and the plain arguments of its calls, where they are new or have changed."""
        for name, value in watched.settings.changed(module).items():
            self._recorder.fact(watched.node, "scalar", name, value)
        for path, value in arguments:
            described = plain(value)
            if watched.arguments.get(path, self) is not described:
                watched.arguments[path] = described
                self._recorder.fact(watched.node, "argument", path, described)

    # -- what goes wrong

    def _failed(self, watched: WatchedModule, error: BaseException) -> None:
        """Notes the module in which the user's forward raised, once for each exception."""
        if id(error) == self._reported_exception or type(error).__name__ == _EARLY_STOP:
            return
        self._reported_exception = id(error)
        self._recorder.event("exception", f"forward raised {type(error).__name__}", watched.path)

    def _drop_stale(self, watched: WatchedModule, module: torch.nn.Module) -> None:
        """Forgets calls that ended without any hook, as after KeyboardInterrupt, unless the module calls itself."""
        running = 0
        python = sys._getframe()
        while python is not None:
            if python.f_code is _CALL_IMPL and python.f_locals.get("self") is module:
                running += 1
            python = python.f_back  # type: ignore[assignment]
        frames = self.frames
        mine = [index for index, frame in enumerate(frames) if frame.watched is watched]
        stale = mine[max(running - 1, 0) :]
        while stale and len(frames) > stale[0]:
            self._exit(frames.pop())


def _nothing(*arguments: object) -> None:
    """Does nothing."""


def _caller(path: str | None, callable_paths: Collection[str | None]) -> str | None:
    """Gives the path of the innermost module around this one that can be called: not a list or a dict of modules."""
    while path:
        path = path.rpartition(".")[0]
        if path in callable_paths:
            return path
    return None
