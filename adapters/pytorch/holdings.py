"""Where a parameter is while it is trained: what this rank keeps of it, what modules compute with, what it gathered.

A plain parameter is all of that itself. Data-parallel wrappers take it apart: the optimizer updates a shard, the
forward uses the gathered whole, and the gradient of the whole is reduced over ranks into one of the shard. A
``Holding`` says which tensor is which, under the parameter's own name, and how each lies in the whole one; nothing is
gathered for it.

What holds parameters in another way (a distributed optimizer of Megatron, ZeRO of DeepSpeed) is added by a function in
``FINDERS``, which needs no import of it: see ``docs/data-parallel.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from msprobe.adapters.pytorch.dtensors import local_of
from msprobe.adapters.pytorch.placed import Placed
from msprobe.adapters.pytorch.wrappers import unwrapped
from msprobe.core.placement import Layout

if TYPE_CHECKING:
    import torch

    from msprobe.adapters.pytorch.nodes import WatchedModule
    from msprobe.core.recorder import Recorder

Named = tuple["WatchedModule", str]


class Place(NamedTuple):
    """This rank's coordinate on one axis, the number of ranks along it, and their global numbers."""

    axis: str
    coordinate: int
    size: int
    ranks: tuple[int, ...]


def place(axis: str, group: Any) -> Place:
    """Gives this rank's place in a process group."""
    from torch.distributed import get_process_group_ranks

    return Place(axis, group.rank(), group.size(), tuple(get_process_group_ranks(group)))


@dataclass(frozen=True)
class DataParallel:
    """Ranks that train on different samples and add up their gradients.

    ``places`` holds the axes, the outermost first: ``dp`` for ranks that hold the same, ``fsdp`` for ranks that hold
    different shards. ``divisor`` divides the sum of the gradients.
    """

    places: tuple[Place, ...] = ()
    divisor: float = 1.0
    _layouts: dict[Any, Layout] = field(default_factory=dict, compare=False, repr=False)

    @property
    def size(self) -> int:
        """The number of ranks."""
        return math.prod(self.sizes.values())

    @property
    def sizes(self) -> dict[str, int]:
        """The number of ranks along each axis."""
        return {place.axis: place.size for place in self.places}

    def replicated(self, part: torch.Tensor | Placed) -> torch.Tensor | Placed:
        """Says that the ranks hold the same, as far as the layout does not say otherwise."""
        return self._extended(part, partial=False)

    def unreduced(self, part: torch.Tensor | Placed) -> torch.Tensor | Placed:
        """Says that the whole is the sum over ranks, divided by the divisor."""
        return self._extended(part, partial=True)

    def _extended(self, part: torch.Tensor | Placed, *, partial: bool) -> torch.Tensor | Placed:
        if not any(place.size > 1 for place in self.places):
            return part
        part = local_of(part)
        known = part.layout if isinstance(part, Placed) else part.shape
        layout = self._layouts.get((known, partial))
        if layout is None:
            whole = known if isinstance(known, Layout) else Layout.whole(known)
            layout = self._layouts[known, partial] = self._layout(whole, partial=partial)
        return replace(part, layout=layout) if isinstance(part, Placed) else Placed(part, layout)

    def _layout(self, layout: Layout, *, partial: bool) -> Layout:
        for place in self.places:
            if place.size > 1 and layout.placement(place.axis) is None:
                layout = layout.partial(place.axis) if partial else layout.replicate(place.axis)
        return replace(layout, scale=layout.scale * self.divisor) if partial else layout


class Holding(Protocol):
    """One parameter: where its parts are at present. Tensors are local ones; None where there is none now."""

    @property
    def group(self) -> DataParallel:
        """The ranks that share the parameter's gradient."""
        ...

    @property
    def updated(self) -> torch.Tensor:
        """The object that an optimizer knows the parameter by."""
        ...

    def stored(self) -> torch.Tensor | Placed | None:
        """Gives what this rank keeps: a shard, perhaps an empty one."""
        ...

    def used(self) -> torch.Tensor | None:
        """Gives what modules compute with at present; its gradient is this rank's own, not yet reduced."""
        ...

    def gradient(self) -> torch.Tensor | Placed | None:
        """Gives what has been gathered and reduced for the optimizer."""
        ...

    def part(self, tensor: torch.Tensor) -> torch.Tensor | Placed:
        """Gives what of a tensor that the optimizer keeps for ``updated`` (its state) belongs to the parameter."""
        ...

    def reduces(self) -> bool:
        """Tells whether the backward pass that is just over has reduced gradients, and not only accumulated them.

        False too where the wrapper tells by itself when it has (``Found.subscribe``).
        """
        ...


class Plain:
    """A parameter that its module holds, and nothing else."""

    group: Final = DataParallel()

    def __init__(self, parameter: torch.Tensor) -> None:
        self.updated = parameter

    def stored(self) -> torch.Tensor:
        """Gives the parameter."""
        return self.updated

    def used(self) -> torch.Tensor:
        """Gives the parameter."""
        return self.updated

    def gradient(self) -> torch.Tensor | None:
        """Gives what it has gathered."""
        return self.updated.grad

    def part(self, tensor: torch.Tensor) -> torch.Tensor:
        """Gives the tensor."""
        return tensor

    def reduces(self) -> bool:
        """Tells that nothing is reduced."""
        return False


@dataclass(frozen=True)
class Found:
    """What a finder tells: the parameters that a wrapper holds, by module and name, and facts about the wrapper."""

    module: torch.nn.Module
    #: (module, name of the parameter in it, its holding); shared parameters come with each of their names.
    parameters: Sequence[tuple[torch.nn.Module, str, Holding]]
    group: DataParallel
    facts: Mapping[str, Any] = field(default_factory=dict)
    #: For wrappers that reduce gradients on their own account, not at the end of the backward pass: takes a function
    #: to call whenever a reduction is complete, gives one that ends this.
    subscribe: Callable[[Callable[[], None]], Callable[[], None]] | None = None


Finder = Callable[["torch.nn.Module"], Iterator[Found]]

#: Functions from a root module to what wraps parameters in it, asked after those for torch's own wrappers.
FINDERS: Final[list[Finder]] = []


class Holdings:
    """The parameters of the watched models, and which of them something else than their module holds."""

    def __init__(self) -> None:
        self._by_module: dict[int, dict[str, Holding]] = {}
        self.found: list[Found] = []
        #: What could not be found out, in words.
        self.problems: list[str] = []
        #: Called when a wrapper says that a reduction is complete.
        self.on_reduced: Callable[[], None] = lambda: None
        self._subscriptions: list[Callable[[], None]] = []
        #: The ranks that train on different samples, over all models.
        self.group = DataParallel()

    def forget(self) -> None:
        """Asks wrappers to tell of no more reductions."""
        while self._subscriptions:
            self._subscriptions.pop()()

    def subscribe(self) -> None:
        """Asks wrappers to tell of their reductions."""
        self.forget()
        asked = (found.subscribe for found in self.found)
        self._subscriptions = [subscribe(lambda: self.on_reduced()) for subscribe in asked if subscribe is not None]

    def look(self, roots: Iterable[torch.nn.Module]) -> None:
        """Looks for wrappers in the models."""
        from msprobe.adapters.pytorch.flat_parameters import find_flat
        from msprobe.adapters.pytorch.fully_sharded import find_fully_sharded
        from msprobe.adapters.pytorch.replicas import find_replicas

        finders: tuple[Finder, ...] = (find_flat, find_fully_sharded, find_replicas, *FINDERS)
        self.found, self.problems = [], []
        for root in roots:
            for find in finders:
                try:
                    self.found += find(root)
                except Exception as error:  # noqa: BLE001 -- the inside of wrappers changes with their versions
                    message = f"parameters are not taken apart: {find.__name__} failed: {type(error).__name__}: {error}"
                    self.problems.append(message)
        self._by_module.clear()
        for found in self.found:
            for module, name, holding in found.parameters:
                self._by_module.setdefault(id(module), {}).setdefault(name, holding)
        self.group = max((found.group for found in self.found), key=lambda group: group.size, default=DataParallel())

    def tell(self, recorder: Recorder, node_of: Callable[[torch.nn.Module], int | None]) -> None:
        """Notes how wrappers hold parameters (strategy, ranks, precision), and what could not be found out.

        ``node_of`` gives the recorder's number of a module's node.
        """
        for problem in self.problems:
            recorder.event("gap", problem)
        told: dict[str, object] = {}
        for found in self.found:
            node = node_of(unwrapped(found.module))
            for name, value in found.facts.items():
                if name not in told or told[name] != value:  # the units of one model mostly are alike
                    recorder.fact(node, "parallel", name, value)
                told.setdefault(name, value)

    def __bool__(self) -> bool:
        return bool(self._by_module)

    def of(self, module: torch.nn.Module) -> Mapping[str, Holding]:
        """Gives the held parameters of a module by name."""
        return self._by_module.get(id(module), _NONE)

    def named(
        self, watched_modules: Iterable[tuple[WatchedModule, torch.nn.Module]]
    ) -> Iterator[tuple[Holding, list[Named]]]:
        """Gives each parameter with all its names: tied weights have several."""
        found: dict[int, tuple[Holding, list[Named]]] = {}
        for watched, module in watched_modules:
            held = self.of(module)
            for name, parameter in module._parameters.items():
                if parameter is not None and name not in held and not is_flat(parameter):
                    found.setdefault(id(parameter), (Plain(parameter), []))[1].append((watched, name))
            for name, holding in held.items():
                found.setdefault(id(holding), (holding, []))[1].append((watched, name))
        yield from found.values()


_NONE: Final[Mapping[str, Holding]] = {}


def is_flat(parameter: torch.Tensor) -> bool:
    """Tells whether a parameter is one into which FSDP1 has put those of a whole unit."""
    return getattr(parameter, "_is_flat_param", False) or type(parameter).__name__ == "FlatParameter"
