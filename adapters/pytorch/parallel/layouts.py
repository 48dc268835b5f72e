"""Gives the tensors that hooks see their layout, on a mesh of several ranks.

A distributed tensor says itself how it lies, and so does a plain one that was just taken out of one (its autograd node
holds the specification). Of parameters it is declared: by attributes that Megatron sets, or by rules for classes. The
rest follows through the operators of the traced step (``spreading``); what was found at a site there holds for the site
in later steps. Where nothing was followed, nothing is claimed: the axes are unknown.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from msprobe.adapters.pytorch.dtensors import is_dtensor, layout_of_spec, placed
from msprobe.adapters.pytorch.parallel.class_rules import ClassRules, placed_by
from msprobe.adapters.pytorch.parallel.declarations import attributes_of, by_attributes
from msprobe.adapters.pytorch.parallel.experts import local_experts
from msprobe.adapters.pytorch.parallel.mesh import find_mesh, with_axes
from msprobe.adapters.pytorch.parallel.pipeline import pipeline_places
from msprobe.adapters.pytorch.parallel.spreading import SpreadTracker
from msprobe.adapters.pytorch.parallel.spreads import (
    Spread,
    axes_of,
    of_layout,
    scaled,
    settled_along,
    to_layout,
    whole,
)
from msprobe.adapters.pytorch.placed import Placed
from msprobe.adapters.pytorch.wrappers import class_of
from msprobe.core.placement import DATA_AXES, Layout
from msprobe.core.sites import Direction, Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msprobe.adapters.pytorch.holdings import Holdings
    from msprobe.adapters.pytorch.modules import ModuleWatcher
    from msprobe.adapters.pytorch.nodes import WatchedModule
    from msprobe.adapters.pytorch.parallel.mesh import Mesh
    from msprobe.adapters.pytorch.tracing import Tracer
    from msprobe.core.options import RecordOptions
    from msprobe.core.recorder import Recorder


@dataclass(frozen=True)
class Told:
    """What the user says: rules for classes of layers, and how context parallelism cuts a sequence ("": not told)."""

    rules: ClassRules
    sequence_cut: str = ""

    @classmethod
    def of(cls, options: RecordOptions) -> Told:
        """Reads it from the options.

        Raises:
            RecordingError: A rule cannot be imported.
        """
        return cls(ClassRules(options.layouts), options.context_parallel)


def mesh_of(models: Iterable[torch.nn.Module], asked: Iterable[tuple[str, int]], holdings: Holdings) -> Mesh:
    """Finds the mesh of models, and the axes of a pipeline and of wrappers around them.

    Raises:
        RecordingError: The sizes that the user gave do not make the number of ranks.
    """
    models = list(models)
    holdings.look(models)
    return with_axes(find_mesh(models, asked), [*pipeline_places(models), *holdings.group.places])


def layouts_on(mesh: Mesh, recorder: Recorder, holdings: Holdings, told: Told) -> Layouts | None:
    """Gives the layouts of a model on a mesh; None on a mesh of one rank.

    Of the axes of data-parallel wrappers more is known elsewhere (``holdings``, ``batches``).
    """
    if not mesh.axes:
        return None
    data = {axis for axis in mesh.axes if axis in DATA_AXES}
    left_out = {"pp", *holdings.group.sizes, *(("ep",) if data else ())}
    return Layouts(mesh, tuple(axis for axis in mesh.axes if axis not in left_out), recorder, told)


class Layouts:
    """The layouts of one model's tensors on this rank."""

    def __init__(self, mesh: Mesh, axes: tuple[str, ...], recorder: Recorder, told: Told) -> None:
        self.mesh = mesh
        #: The axes that are followed, and those of them along which ranks have different samples.
        self.axes = axes
        self._data = tuple(axis for axis in axes if axis in (*DATA_AXES, "ep"))
        self._recorder = recorder
        self._sequence_cut = told.sequence_cut
        #: Nodes of experts that this rank alone has along axis ``ep``.
        self._owned: set[int] = set()
        #: Rules for classes of layers, and the class of each node.
        self._rules = told.rules
        self._classes: dict[int, str] = {}
        #: Follows operators, in the traced step only.
        self.tracker: SpreadTracker | None = None
        self._declared: dict[int, tuple[Any, Spread]] = {}
        #: For which attachment of hooks the modules were asked.
        self._learned = -1
        self._sites: dict[int, Spread] = {}
        #: Axes over which the loss is a mean or a sum of what the ranks have.
        self._loss: dict[str, str] = {}
        #: Passes of a step whose gradients are divided by their number at the end: those of a pipeline's schedule.
        self.passes = 1

    def begin_step(self, modules: ModuleWatcher, tracer: Tracer | None) -> None:
        """Asks parameters how they are cut and experts which they are; begins to follow operators in a traced step."""
        if self._learned != modules.attachments:
            self._learned = modules.attachments
            self._learn(list(modules.pairs()))
        if tracer is None:
            return
        tracer.layouts = self
        self.tracker = SpreadTracker(self.mesh)
        for tensor, spread in self._declared.values():
            self.tracker.tell(tensor, spread)

    def _learn(self, pairs: list[tuple[WatchedModule, torch.nn.Module]]) -> None:
        self._classes = {watched.node: class_of(module).__name__ for watched, module in pairs}
        self._declared.clear()
        for watched, module in pairs:
            self._find_declared(watched, module)
        self._find_experts(pairs)

    def _find_declared(self, watched: WatchedModule, module: torch.nn.Module) -> None:
        """Asks the parameters of one module how they are cut, and the rules for its class."""
        for name, parameter in module._parameters.items():
            if parameter is None or is_dtensor(parameter):
                continue
            spread = by_attributes(parameter, self.mesh)
            if self._rules:
                kind = self._classes[watched.node]
                ruled = self._rules.placements(kind, Direction.FORWARD, Role.PARAMETER, name)
                spread = placed_by(ruled, spread, tuple(parameter.shape), self.mesh, self.axes)
            if spread is not None:
                self._declared[id(parameter)] = (parameter, spread)
            for attribute, value in attributes_of(parameter).items():
                self._recorder.fact(watched.node, "parallel", f"{name}.{attribute}", value)

    def _find_experts(self, pairs: list[tuple[WatchedModule, torch.nn.Module]]) -> None:
        nodes = {watched.path: watched.node for watched, _ in pairs}
        for expert in local_experts(pairs):
            self._recorder.fact(nodes[expert.path], "parallel", "path", expert.global_path)
            inside = (node for path, node in nodes.items() if path == expert.path or path.startswith(f"{expert.path}."))
            self._owned.update(inside)

    def stop(self) -> None:
        """Ends following; what was found at sites is kept."""
        self.tracker = None

    def batch(self, tensors: Iterable[torch.Tensor]) -> None:
        """Hears what a whole model is called with.

        Data axes cut dimension 0 into equal parts, context parallelism dimension 1 in the way that was told.
        """
        if self.tracker is None or not (self._data or "cp" in self.axes):
            return
        for tensor in tensors:
            if tensor.ndim and not is_dtensor(tensor) and self.tracker.look(tensor) is None:
                self.tracker.tell(tensor, of_layout(self._batch_layout(tensor)))

    def _batch_layout(self, tensor: torch.Tensor) -> Layout:
        """Gives the layout of one tensor that a whole model is called with."""
        shape = list(tensor.shape)
        shape[0] *= math.prod(self.mesh.sizes[axis] for axis in self._data)
        in_sequence = "cp" in self.axes and len(shape) > 1
        own, size = (self.mesh.places["cp"]) if in_sequence else (0, 1)
        zigzag = self._sequence_cut == "zigzag" and tensor.shape[1:2].numel() % 2 == 0
        contiguous = self._sequence_cut == "contiguous"
        if in_sequence and (zigzag or contiguous):
            shape[1] *= size
        layout = Layout.whole(shape, known_by="rule")
        for axis in self._data:
            layout = layout.shard(axis, 0, coordinate=self.mesh.coordinates[axis], parts=self.mesh.sizes[axis])
        if in_sequence and zigzag:
            return layout.zigzag("cp", 1, coordinate=own, size=size)
        if in_sequence and contiguous:
            return layout.shard("cp", 1, coordinate=own, parts=size)
        return layout.unknown("cp") if in_sequence else layout

    def spread_of(self, tensor: torch.Tensor) -> Spread | None:
        """Gives what is known of a tensor by itself; None: it is whole, or nothing is known."""
        if is_dtensor(tensor):
            return of_layout(layout_of_spec(tensor._spec))  # type: ignore[attr-defined]
        spec = getattr(tensor.grad_fn, "dtensor_spec", None) if tensor.requires_grad else None
        if spec is not None:
            found = of_layout(layout_of_spec(spec))
            if found is not None and found.shape == tuple(tensor.shape):
                if self.tracker is not None:
                    self.tracker.tell(tensor, found)
                return found
        known = self._declared.get(id(tensor))
        if known is not None and known[0] is tensor:
            return known[1]
        return self.tracker.look(tensor) if self.tracker is not None else None

    def at_site(self, site: int, tensor: torch.Tensor) -> Spread | None:
        """Gives how a tensor that is seen at a site is spread: by itself, else as it was in the traced step."""
        if is_dtensor(tensor):
            return None
        found = self.spread_of(tensor)
        shape = tuple(tensor.shape)
        if self._rules:
            found = self._by_rule(site, tensor, found)
        if self._owns(site):
            found = settled_along(found or whole(shape), "ep")
        if self.tracker is not None:
            self._sites[site] = found or whole(shape)
        elif found is None:
            known = self._sites.get(site)
            found = whole(shape).with_unknown(self.axes) if known is None else scaled(known, shape)
        return found

    def _owns(self, site: int) -> bool:
        return bool(self._owned) and self._recorder.key_of(site)[0] in self._owned

    def _by_rule(self, site: int, tensor: torch.Tensor, found: Spread | None) -> Spread | None:
        node, direction, role, argument, _ = self._recorder.key_of(site)
        if direction not in (Direction.FORWARD, Direction.RECOMPUTE) or node not in self._classes:
            return found
        placements = self._rules.placements(self._classes[node], direction, role, argument)
        if not placements:
            return found
        spread = placed_by(placements, found, tuple(tensor.shape), self.mesh, self.axes)
        if self.tracker is not None and spread is not None:
            self.tracker.tell(tensor, spread)
        return spread

    def gradient(
        self, site: int, gradient: torch.Tensor, forward: Spread | None, *, of_parameter: bool = False
    ) -> torch.Tensor | Placed:
        """Gives the gradient of a tensor that was spread like ``forward`` (None: whole) with its layout.

        Its elements lie like the tensor's own; whether they are partial sums is what was followed.
        """
        if is_dtensor(gradient):
            part = placed(gradient)
            return Placed(part.tensor, replace(part.layout, scale=float(self.passes))) if self.passes > 1 else gradient
        shape = tuple(gradient.shape)
        own = self.at_site(site, gradient)
        like = self._like(forward, own, shape)
        cut = frozenset(axis for dim in like.dims for axis in axes_of(dim))
        unknown = like.unknown | ((own.unknown - cut) if own is not None else frozenset())
        partial = dict(own.partial if own is not None else ())
        if of_parameter:
            summed = self._summed() if not self._owns(site) else set()
            unknown, partial = unknown - summed, {**dict.fromkeys(summed, "sum"), **partial}
        spread = Spread(like.dims, tuple(sorted((a, op) for a, op in partial.items() if a not in cut)))
        spread = spread.with_unknown(unknown)
        if self.tracker is not None:
            self.tracker.tell(gradient, spread)
            self._sites[site] = spread
        return self._of_loss(gradient, spread, of_parameter=of_parameter)

    def _summed(self) -> set[str]:
        """Gives the axes over which the gradients of parameters are yet to be summed, whatever was followed."""
        return {axis for axis in self.axes if axis in self._data or axis == "cp"}

    def _of_loss(self, gradient: torch.Tensor, spread: Spread, *, of_parameter: bool) -> torch.Tensor | Placed:
        """Says by what factor a gradient of this rank's loss differs from one of the whole loss.

        That is the mean of those of the ranks unless it was seen to be their sum.
        """
        averaged = {axis for axis in self._summed() if self._loss.get(axis, "avg") == "avg"}
        scale = float(self.passes)
        if of_parameter:
            ops = tuple((axis, "avg" if axis in averaged else op) for axis, op in spread.partial)
            averaged -= dict(ops).keys()
            spread = replace(spread, partial=ops)
        for axis in averaged:
            scale *= self.mesh.sizes[axis]
        return self.placed(gradient, spread, scale)

    def _like(self, forward: Spread | None, own: Spread | None, shape: tuple[int, ...]) -> Spread:
        if forward is not None and forward.shape == shape:
            return forward
        if forward is None and self.tracker is not None:
            return whole(shape)
        known = own if own is not None and own.shape == shape else None
        return known or whole(shape).with_unknown(self.axes)

    def consumed(self, parameter: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor | Placed:
        """Gives what an optimizer consumes or keeps of a parameter: it must lie as the parameter does, summed up."""
        known = self._declared.get(id(parameter))
        shape = tuple(tensor.shape)
        spread = known[1] if known is not None and known[1].shape == shape else whole(shape)
        return self.placed(tensor, spread, explicit=True)

    def still_partial(self, tensor: torch.Tensor) -> tuple[str, ...]:
        """Gives the axes over which a tensor is still a partial sum, as far as was followed."""
        if self.tracker is None or is_dtensor(tensor):  # of which every operator takes the sum
            return ()
        found = self.tracker.look(tensor)
        return tuple(axis for axis, _ in found.partial) if found is not None else ()

    def ran(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Follows an operator that has run. The last scalar of a forward pass that is partial is taken for the loss."""
        if self.tracker is None:
            return
        self.tracker.ran(func, args, kwargs, result)
        first = result[0] if isinstance(result, tuple) and result else result
        if isinstance(first, torch.Tensor) and not first.ndim and torch._C._current_graph_task_id() == -1:
            found = self.tracker.look(first)
            if found is not None and found.partial:
                self._loss = dict(found.partial)

    def placed(
        self, tensor: torch.Tensor, spread: Spread | None, scale: float = 1.0, *, explicit: bool = False
    ) -> torch.Tensor | Placed:
        """Gives a local tensor together with its layout, where there is one to tell."""
        if is_dtensor(tensor):
            return tensor
        spread = spread or whole(tuple(tensor.shape))
        explicit = explicit or scale != 1.0 or bool(set(self.axes) - {"tp"})
        layout = to_layout(spread, self.axes, explicit=explicit)
        if layout is None:
            return tensor
        return Placed(tensor, replace(layout, scale=scale) if scale != 1.0 else layout)
