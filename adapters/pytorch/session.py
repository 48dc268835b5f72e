"""One recording of one model or several: attaches on recorded steps, counts steps, and lets go of everything."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.adapters.pytorch import saving
from msprobe.adapters.pytorch.attribution import Attribution
from msprobe.adapters.pytorch.batches import Samples
from msprobe.adapters.pytorch.closing import close_at_exit
from msprobe.adapters.pytorch.compiled import has_compiled
from msprobe.adapters.pytorch.context import random_states, rank_info, run_header
from msprobe.adapters.pytorch.destination import Destination
from msprobe.adapters.pytorch.dispatch import OpRecorder, refuse_compiled
from msprobe.adapters.pytorch.gradients import Gradients
from msprobe.adapters.pytorch.guard import Failures, guarded
from msprobe.adapters.pytorch.holdings import Holdings
from msprobe.adapters.pytorch.modes import install, settle, uninstall
from msprobe.adapters.pytorch.modules import ModuleWatcher
from msprobe.adapters.pytorch.observing import Observer
from msprobe.adapters.pytorch.optimizers import OptimizerSteps, parameter_ids, settings_of
from msprobe.adapters.pytorch.parallel.layouts import Told, layouts_on, mesh_of
from msprobe.adapters.pytorch.parallel.mesh import rank_and_world
from msprobe.adapters.pytorch.parallel.pipeline import named_models
from msprobe.adapters.pytorch.parameters import Parameters
from msprobe.adapters.pytorch.perturb import Perturbation
from msprobe.adapters.pytorch.reductions import TorchReducer
from msprobe.adapters.pytorch.saves import Saves
from msprobe.adapters.pytorch.steering import Steering
from msprobe.adapters.pytorch.tracing import Tracer
from msprobe.adapters.pytorch.updates import Updates
from msprobe.adapters.pytorch.vital_signs import VitalSigns
from msprobe.core.recorder import Recorder
from msprobe.core.run.writer import RunWriter

if TYPE_CHECKING:
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from typing_extensions import Self

    from msprobe.adapters.pytorch.nodes import WatchedModule
    from msprobe.core.options import RecordOptions


class Session:
    """A recording under way. Use it in a ``with`` block, or call ``close``.

    A step ends when ``step`` is called; with an optimizer given, also after the optimizer's own step; and as long as
    neither is there, when the next forward begins after a step of any optimizer that updates the model.
    """

    def __init__(
        self,
        model: Any,
        path: Path,
        options: RecordOptions,
        *,
        optimizer: Any = None,
        context: Mapping[str, Any] | None = None,
        perturb: int | None = None,
    ) -> None:
        self.closed = False
        self.options = options
        self.models = named_models(model)
        self._told = Told.of(options)
        self._context = dict(context or {})
        self._perturb = perturb
        self._at_exit: Any = None
        self._holdings = Holdings()
        self._steering = Steering(options)
        self._destination = Destination(path, lambda: self._writer(path))
        self.recorder = Recorder(self._destination, TorchReducer(), options)
        self.failures = Failures(lambda message, subject: self.recorder.event("error", message, subject))
        self._explicit = optimizer is not None
        self._pending: set[int] = set()
        #: Steps end by an optimizer's step; without one given, only until the user first calls ``step``.
        self._counts_itself = True
        self._ended_by_itself = False
        self._forwards = 0
        self._touched = False
        self._optimizer_steps = 0
        self._traced = False
        #: The number of ranks for which layouts were looked for.
        self._known_world = 1
        self._mode: TorchDispatchMode | None = None
        self._steering.recorder = self.recorder
        self._build()
        self._perturbation = Perturbation(self.models, perturb) if perturb is not None else None
        self._optimizers = OptimizerSteps(
            optimizer,
            before=self.optimizer_begins,
            after=self._optimizer_stepped,
            skipped=self._signs.scalars.skipped,
            scaled=self._signs.scalars.scaled,
        )
        saving.active.append(self)
        self._close_at_exit()
        self._attach()

    def _build(self) -> None:
        recorder, options, failures = self.recorder, self.options, self.failures
        self._observer = Observer(recorder)
        self._gradients = Gradients(self._observer, failures)
        self._parameters = Parameters(self._observer, self._gradients, self._holdings, options, failures)
        self._updates = Updates(self._observer, self._holdings, options, failures)
        self._attribution = Attribution()
        self._saves = Saves(self._observer, self._gradients, self._attribution)
        self._signs = VitalSigns(self._observer, self._attribution, options, failures, self._records_now)
        self._ops: OpRecorder | None = None
        shared = self._observer, self._gradients, self._parameters, self._attribution
        self._modules = ModuleWatcher(*shared, options, failures)
        self._modules.on_outermost = self._outermost
        self._modules.on_batch = self._batch
        self._modules.on_result = self._signs.scalars.returned
        self._modules.on_declared = self._signs.declared
        for prefix, model in self.models.items():
            self._modules.add_root(model, prefix)
        if options.level != "module":
            for model in self.models.values():
                refuse_compiled(model, options, recorder)
            self._ops = OpRecorder(recorder, self._attribution, options)
            self._observer.contents = self._ops.contents

    # -- the user's side

    def step(self) -> None:
        """Ends a step, unless it ended by itself since the last call.

        Raises:
            AlertError: There was an alert, and the options ask to stop then.
        """
        self.end_step()
        self._steering.raise_if_asked()

    @guarded
    def end_step(self) -> None:
        """Ends a step, unless it ended by itself since the last call; never raises."""
        if self.closed:
            return
        self._counts_itself = self._explicit
        if self._ended_by_itself:
            self._ended_by_itself = False
        else:
            self._end_step()

    @guarded
    def log(self, /, **scalars: Any) -> None:
        """Notes numbers of the step, such as ``loss``: plain ones or tensors of one element, which are not waited for.

        After an optimizer's step that has ended the step of the recording, they belong to that step.
        """
        ended = self._ended_by_itself and not self._touched
        if not self.closed:
            self._signs.scalars.log(scalars, self.recorder.step - 1 if ended else self.recorder.step)

    def save(self, tensor: Any, name: str) -> None:
        """Records a tensor, or the tensors of a structure, under a name."""
        if self._records_now():
            self._save(name, tensor)

    def close(self, *, complete: bool = True) -> None:
        """Takes everything off the model and finishes the run; ends the step under way if that is ``complete``."""
        if self.closed:
            return
        if self._touched and complete:
            self._end_step()
        self._finish()
        self.closed = True
        saving.active.remove(self)
        atexit.unregister(self._at_exit)
        self._optimizers.remove()
        self._holdings.forget()
        self._signs.remove()
        self._detach()
        if self._perturbation is not None:
            self._perturbation.remove()
        self._steering.close()
        self.recorder.close()

    def add_model(self, model: torch.nn.Module, name: str) -> None:
        """Watches one more model, whose paths begin with ``name``."""
        self.models[name] = model
        self._modules.add_root(model, name)
        if self._perturbation is not None:
            self._perturbation.add(model)
        self._attach()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close(complete=not any(error))

    # -- steps

    @guarded
    def optimizer_begins(self, optimizer: Any) -> None:
        """Hears that an optimizer is about to step; its gradients are what it consumes."""
        if self._concerns(optimizer):
            if id(optimizer) in self._pending:
                self._end_by_itself()
            self._optimizer_begins(optimizer)

    @guarded
    def optimizer_ends(self, optimizer: Any) -> None:
        """Hears that an optimizer has stepped."""
        if not self._concerns(optimizer):
            return
        if self._ops is not None:
            self._ops.updating(active=False)
        self._updates.end(optimizer)
        self._optimizer_steps += 1
        if self._explicit:
            self._end_by_itself()
        elif self._counts_itself:
            self._pending.add(id(optimizer))
            self._arm()

    def _optimizer_stepped(self, optimizer: Any) -> None:
        self.optimizer_ends(optimizer)
        self._steering.raise_if_asked()

    def _records_now(self) -> bool:
        return self.recorder.recording and self._modules.attached and not self.closed

    def _concerns(self, optimizer: Any) -> bool:
        if self.closed or self._explicit:
            return not self.closed
        return not self._modules.parameter_ids().isdisjoint(parameter_ids(optimizer))

    @guarded
    def _optimizer_begins(self, optimizer: Any) -> None:
        if self.recorder.recording and self._modules.attached:
            self._updates.begin(self._modules.pairs(), optimizer)
            self._parameters.record_updates(self._modules.pairs(), parameter_ids(optimizer))
            for name, value in settings_of(optimizer).items():
                self.recorder.fact(None, "optimizer", name, value)
            self._signs.scalars.begins(optimizer)
            if self._ops is not None:
                self._ops.updating(active=True)

    def _end_by_itself(self) -> None:
        self._end_step()
        self._ended_by_itself = True

    def _end_step(self) -> None:
        self._finish()
        self._pending.clear()
        self._forwards = self._optimizer_steps = 0
        self._touched = False
        self.recorder.end_step()
        options = self._steering.next_options(self.recorder)
        if options is not None:
            self.use(options)
        self._attach()

    @guarded
    def use(self, options: RecordOptions) -> None:
        """Goes on with other options; called between steps. The level stays."""
        self.options = options
        self.recorder.use(options)
        self._modules.use(options)
        self._parameters.use(options)
        self._updates.options = options
        if self._ops is not None:
            self._ops.use(options)

    @guarded
    def _finish(self) -> None:
        """Records what is known only at the end of a step, and forgets what belongs to it."""
        if not self._optimizer_steps and self._gradients.arrivals:
            self._parameters.record_updates(self._modules.pairs(), None)
        if self._ops is not None:
            self._ops.new_step()
        if self._observer.tracer is not None and self._forwards:
            self._observer.tracer.new_step()
            self._traced = True
        for part in (self._gradients, self._parameters, self._modules, self._saves, self._signs, self._observer):
            part.end_step()
        self._attribution.new_step()

    def _outermost(self, watched: WatchedModule) -> bool:
        """Prepares for a forward of a whole model; gives whether the step is recorded."""
        if self._pending:
            self._end_by_itself()
            if not self.recorder.recording:
                return False
        if not self._forwards:
            self._random_facts()
            self._find_layouts()
        self._forwards += 1
        self._touched = True
        return True

    def _batch(self, shapes: list[torch.Size]) -> None:
        """Hears what a forward of a whole model gets, before any of it is recorded."""
        group = self._holdings.group
        if group.size > 1:
            self._observer.samples = Samples(group, self.options.batch_order, shapes)

    @guarded
    def _find_layouts(self) -> None:
        """Learns how the model is spread over ranks, before the first forward of a step."""
        observer, (_, world) = self._observer, rank_and_world()
        if observer.layouts is None and world != self._known_world:
            self._known_world = world
            mesh = mesh_of(self.models.values(), self.options.mesh, self._holdings)
            observer.layouts = layouts_on(mesh, self.recorder, self._holdings, self._told)
        if observer.layouts is not None:
            observer.layouts.begin_step(self._modules, observer.tracer)
        if self._ops is not None:
            self._ops.layouts = observer.layouts

    @guarded
    def _random_facts(self) -> None:
        for name, digest in random_states():
            self.recorder.fact(None, "rng", name, digest)

    @guarded
    def _save(self, name: str, tensor: Any) -> None:
        self._touched = True
        self._saves.record(name, tensor)

    # -- hooks and modes

    @guarded
    def _attach(self) -> None:
        """Puts hooks and modes in place when the present step is recorded, and takes them away when it is not."""
        if self.closed or not self.recorder.recording:
            self._detach()
            return
        self._hook_modules()
        wants_tracer = self.options.trace and not self._traced and not has_compiled(list(self.models.values()))
        self._observer.tracer = Tracer(self.recorder) if wants_tracer else None
        mode: TorchDispatchMode | None = self._ops
        if self._ops is not None:
            self._ops.tracer = self._observer.tracer
        elif self._observer.tracer is not None:
            mode = self._observer.tracer.mode()
        self._use(mode)

    def _owned_parameters(self) -> list[tuple[str, torch.Tensor]]:
        return [
            (watched.path, parameter)
            for watched, module in self._modules.pairs()
            for parameter in module._parameters.values()
            if parameter is not None
        ]

    def _hook_modules(self) -> None:
        if self._modules.attach():
            self._holdings.look(self.models.values())
            self._holdings.tell(self.recorder, self._modules.node_of)
            self._holdings.subscribe()
            self._attribution.own_parameters(self._owned_parameters())

    def _arm(self) -> None:
        """Makes sure that the forward that begins the next step is noticed, if that step is to be recorded."""
        if self.recorder.records(self.recorder.step + 1):
            self._hook_modules()

    def _detach(self) -> None:
        self._use(None)
        self._observer.tracer = None
        self._modules.detach()

    def _use(self, mode: TorchDispatchMode | None) -> None:
        if self._mode is not None and self._mode is not mode:
            uninstall(self._mode)
        if mode is not None:
            install(mode)
        else:
            settle()
        self._mode = mode

    def _writer(self, path: Path) -> RunWriter:
        options = self.options
        mesh, perturbed = mesh_of(self.models.values(), self.options.mesh, self._holdings), self._perturb is not None
        header = run_header(options, self.models, self._context, mesh=mesh.sizes, perturbed=perturbed)
        rank = rank_info(mesh.places)
        what, watch = self._steering.stored(), self._steering.begin(path, rank.rank)
        writer = RunWriter(path, rank=rank, header=header, what=what, queue_bytes=options.queue_bytes, watch=watch)
        self._close_at_exit()
        return writer

    def _close_at_exit(self) -> None:
        if self._at_exit is not None:
            atexit.unregister(self._at_exit)
        self._at_exit = close_at_exit(self)
