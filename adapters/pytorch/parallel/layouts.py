"""Gives the tensors that hooks see their layout, on a mesh of several ranks.

A distributed tensor says itself how it lies, and so does a plain one that was just taken out of one (its autograd node
holds the specification). Of parameters it is declared: by attributes that Megatron sets, or by rules for classes. The
rest follows through the operators of the traced step (``spreading``); what was found at a site there holds for the site
in later steps. Where nothing was followed, nothing is claimed: the axes are unknown.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from msprobe.adapters.pytorch.dtensors import is_dtensor, layout_of_spec, placed
from msprobe.adapters.pytorch.parallel.declarations import declared
from msprobe.adapters.pytorch.parallel.spreading import SpreadTracker
from msprobe.adapters.pytorch.parallel.spreads import Spread, axes_of, of_layout, scaled, to_layout, whole
from msprobe.adapters.pytorch.placed import Placed
from msprobe.core.placement import DATA_AXES, Layout

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msprobe.adapters.pytorch.parallel.mesh import Mesh
    from msprobe.adapters.pytorch.tracing import Tracer
    from msprobe.core.options import RecordOptions

#: Axes whose ranks hold other layers, experts or samples: what they do to a tensor is told elsewhere.
_TOLD_ELSEWHERE = frozenset({"pp", "ep", *DATA_AXES})


def layouts_on(mesh: Mesh, options: RecordOptions) -> Layouts | None:
    """Gives the layouts of a model on a mesh; None on a mesh of one rank."""
    return Layouts(mesh, options.context_parallel) if mesh.axes else None


class Layouts:
    """The layouts of one model's tensors on this rank."""

    def __init__(self, mesh: Mesh, sequence_cut: str = "") -> None:
        self.mesh = mesh
        self._sequence_cut = sequence_cut
        #: The axes that are followed.
        self.axes = tuple(axis for axis in mesh.axes if axis not in _TOLD_ELSEWHERE)
        #: Follows operators, in the traced step only.
        self.tracker: SpreadTracker | None = None
        self._declared: dict[int, tuple[Any, Spread]] = {}
        self._sites: dict[int, Spread] = {}
        #: Axes over which the loss is a mean or a sum of what the ranks have.
        self._loss: dict[str, str] = {}
        #: Passes of a step whose gradients are divided by their number at the end: those of a pipeline's schedule.
        self.passes = 1

    def begin_step(self, models: Iterable[torch.nn.Module], tracer: Tracer | None) -> None:
        """Asks the parameters how they are cut, and begins to follow operators in a traced step."""
        self._declared = {id(parameter): (parameter, spread) for parameter, spread in declared(models, self.mesh)}
        if tracer is None:
            return
        tracer.layouts = self
        self.tracker = SpreadTracker(self.mesh)
        for tensor, spread in self._declared.values():
            self.tracker.tell(tensor, spread)

    def stop(self) -> None:
        """Ends following; what was found at sites is kept."""
        self.tracker = None

    def batch(self, tensors: Iterable[torch.Tensor]) -> None:
        """Hears what a whole model is called with: context parallelism cuts dimension 1, in the way that was told."""
        if self.tracker is None or "cp" not in self.axes:
            return
        own, size = self.mesh.coordinates["cp"], self.mesh.sizes["cp"]
        for tensor in tensors:
            if tensor.ndim < 2 or is_dtensor(tensor) or self.tracker.look(tensor) is not None:
                continue
            shape = list(tensor.shape)
            shape[1] *= size
            layout = Layout.whole(shape, known_by="rule")
            if self._sequence_cut == "zigzag" and shape[1] % (2 * size) == 0:
                layout = layout.zigzag("cp", 1, coordinate=own, size=size)
            elif self._sequence_cut == "contiguous":
                layout = layout.shard("cp", 1, coordinate=own, parts=size)
            else:
                layout = Layout.whole(tensor.shape).unknown("cp")
            self.tracker.tell(tensor, of_layout(layout))

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
        if self.tracker is not None:
            self._sites[site] = found or whole(tuple(tensor.shape))
        elif found is None:
            known = self._sites.get(site)
            shape = tuple(tensor.shape)
            found = whole(shape).with_unknown(self.axes) if known is None else scaled(known, shape)
        return found

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
        partial = tuple(entry for entry in (own.partial if own is not None else ()) if entry[0] not in cut)
        spread = Spread(like.dims, partial, known_by="propagated").with_unknown(unknown)
        if self.tracker is not None:
            self.tracker.tell(gradient, spread)
            self._sites[site] = spread
        averaged = {axis for axis, op in self._loss.items() if op == "avg"}
        scale = float(self.passes)
        if of_parameter:
            ops = tuple((axis, "avg" if axis in averaged else op) for axis, op in partial)
            return self.placed(gradient, replace(spread, partial=ops), scale)
        for axis in averaged & set(self.axes):
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
        """Gives what an optimizer consumes or keeps of a parameter: it must lie as the parameter does."""
        known = self._declared.get(id(parameter))
        shape = tuple(tensor.shape)
        spread = known[1] if known is not None and known[1].shape == shape else whole(shape)
        return tensor if is_dtensor(tensor) else self.placed(tensor, spread)

    def still_partial(self, tensor: torch.Tensor) -> tuple[str, ...]:
        """Gives the axes over which a tensor is still a partial sum, as far as was followed."""
        found = self.tracker.look(tensor) if self.tracker is not None else None
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

    def placed(self, tensor: torch.Tensor, spread: Spread | None, scale: float = 1.0) -> torch.Tensor | Placed:
        """Gives a local tensor together with its layout, where there is one to tell."""
        if is_dtensor(tensor):
            return tensor
        spread = spread or whole(tuple(tensor.shape))
        explicit = scale != 1.0 or "cp" in self.axes
        layout = to_layout(spread, self.axes, explicit=explicit)
        if layout is None:
            return tensor
        return Placed(tensor, replace(layout, scale=scale) if scale != 1.0 else layout)
