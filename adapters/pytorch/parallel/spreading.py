"""Follows how tensors are spread through the operators of a step: from what is declared to what hooks see.

Parameters, distributed tensors and inputs say how they are cut; every operator passes it on by its rule (``rules``),
and collectives complete, gather or cut it again. What was never touched by a cut tensor is whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import torch

from msprobe.adapters.pytorch.dtensors import is_dtensor, layout_of_spec
from msprobe.adapters.pytorch.parallel.fitting import Call
from msprobe.adapters.pytorch.parallel.pieces import Pieces, at_coordinate, completed, named
from msprobe.adapters.pytorch.parallel.rules import spreads_of_outputs
from msprobe.adapters.pytorch.parallel.spreads import Factor, Spread, is_plain, of_layout, reshaped, whole
from msprobe.adapters.pytorch.storages import Storages, stretch_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from msprobe.adapters.pytorch.parallel.mesh import Mesh

_FUNCTIONAL: Final = ("_c10d_functional", "_c10d_functional_autograd", "c10d_functional")


class SpreadTracker:
    """Knows the spread of tensors by their memory."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._storages = Storages()
        self._cuts: dict[tuple[int, Any], tuple[Any, int, tuple[int, int], int]] = {}

    def look(self, tensor: torch.Tensor) -> Spread | None:
        """Gives the spread of a tensor; None where it is whole as far as is known."""
        if is_dtensor(tensor):
            return of_layout(layout_of_spec(tensor._spec))  # type: ignore[attr-defined]
        plain_tensor = _inner(tensor)
        known = self._storages.of(plain_tensor).spreads
        if not known:
            return None
        found = known.get(stretch_of(plain_tensor))
        if found is None or isinstance(found, Pieces):
            return None
        shape = tuple(plain_tensor.shape)
        return found if found.shape == shape else reshaped(found, shape)

    def tell(self, tensor: torch.Tensor, spread: Spread | Pieces | None) -> None:
        """Says how a tensor is spread, from now on."""
        inner = _inner(tensor)
        storage = self._storages.of(inner)
        if spread is None or (isinstance(spread, Spread) and spread.is_plain):
            if storage.spreads:
                storage.spreads.pop(stretch_of(inner), None)
            return
        if storage.spreads is None:
            storage.spreads = {}
        storage.spreads[stretch_of(inner)] = spread

    def ran(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Follows one operator that has run."""
        outputs = [tensor for tensor in _tensors(result) if not is_dtensor(tensor)]
        for tensor in _tensors(result):
            if is_dtensor(tensor):
                self._tell_local(tensor)
        if not outputs and getattr(func, "namespace", "") != "c10d":
            return
        operands = [*_tensors(args), *_tensors(tuple(kwargs.values()))]
        for tensor in operands:
            if is_dtensor(tensor):
                self._tell_local(tensor)
        schema = getattr(func, "_schema", None)
        namespace, _, name = schema.name.partition("::") if schema is not None else ("", "", "")
        if schema is None:  # a higher-order operator
            self._lose(operands, outputs)
        elif namespace in _FUNCTIONAL:
            self._functional(name, args, outputs)
        elif namespace == "c10d":
            self._collective(name, args)
        else:
            call = Call(f"{name}.{func._overloadname}", args, kwargs, self._spread, outputs)
            self._operator(func, name, call, operands)

    def _lose(self, operands: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> None:
        axes = {axis for tensor in operands for axis in self._spread(tensor).axes}
        for output in outputs:
            self.tell(output, whole(tuple(output.shape)).with_unknown(axes))

    def clear(self) -> None:
        """Forgets everything, at the end of the step."""
        self._storages.clear()
        self._cuts.clear()

    def _spread(self, tensor: torch.Tensor) -> Spread:
        return self.look(tensor) or whole(tuple(tensor.shape))

    def _tell_local(self, tensor: Any) -> None:
        spread = of_layout(layout_of_spec(tensor._spec))
        if spread is not None and spread.shape == tuple(tensor._local_tensor.shape):
            self.tell(tensor._local_tensor, spread)

    def _operator(self, func: Any, name: str, call: Call, operands: Sequence[torch.Tensor]) -> None:
        found = next(filter(None, map(self._pieces, operands)), None)
        if found is not None and self._of_pieces(call, found):
            return
        known = [self._spread(tensor) for tensor in operands]
        if all(spread.is_plain for spread in known):
            for output in call.outputs:
                self.tell(output, None)
        else:
            pointwise = torch.Tag.pointwise in func.tags or name == "copy_"
            spreads = spreads_of_outputs(call, known, pointwise=pointwise)
            for output, spread in zip(call.outputs, spreads, strict=True):
                self.tell(output, spread)
        if name.startswith("split"):
            self._cut(call)
        elif name in ("clone", "_to_copy", "detach", "alias") and call.outputs:
            self._keep_cut(call)
        elif name == "cat":
            self._stacked(call)

    # -- collectives

    def _functional(self, name: str, args: tuple[Any, ...], outputs: Sequence[torch.Tensor]) -> None:
        if name in ("wait_tensor", "_wrap_tensor_autograd"):
            known = self._storages.of(_inner(args[0])).spreads
            self.tell(outputs[0], (known or {}).get(stretch_of(_inner(args[0]))))
            return
        axes = self._axes(args[-1])
        operand = args[0][0] if isinstance(args[0], (list, tuple)) else args[0]
        spread, gathered = self._spread(operand), self._pieces(operand)
        made: Spread | Pieces | None
        if name.startswith("all_reduce"):
            made = completed(spread, axes)
        elif name.startswith("all_gather"):
            made = self._gathered(spread, axes)
        elif name.startswith("reduce_scatter"):
            made = self._scattered(spread, gathered, axes)
        elif name.startswith("broadcast"):
            made = completed(spread, axes)
        else:
            made = whole(tuple(outputs[0].shape)).with_unknown({*spread.axes, *axes})
        for output in outputs:
            self.tell(output, made)

    def _collective(self, name: str, args: tuple[Any, ...]) -> None:
        """Collectives of ``torch.distributed`` itself, which write into tensors that they are given."""
        axes = self._axes(_group_of(args))
        given = [list(_tensors(arg)) for arg in args if isinstance(arg, (list, tuple, torch.Tensor))]
        if not given or name in ("send", "barrier", "monitored_barrier_"):
            return
        for tensor, spread in self._written(name, given, axes):
            self.tell(tensor, spread)

    def _written(
        self, name: str, given: Sequence[Sequence[torch.Tensor]], axes: Sequence[str]
    ) -> Iterator[tuple[torch.Tensor, Spread | Pieces | None]]:
        """Gives the tensors that a collective writes, and how they are spread then."""
        outputs, sources = given[0], given[-1]
        if name.startswith(("allreduce", "broadcast")):
            yield from ((tensor, completed(self._spread(tensor), axes)) for tensor in outputs)
        elif name == "allgather_":
            yield from zip(outputs, self._gathered(self._spread(sources[0]), axes).parts, strict=False)
        elif name.startswith(("_allgather_base", "allgather_into")):
            yield from ((o, self._gathered(self._spread(s), axes)) for o, s in zip(outputs, sources, strict=False))
        elif name == "_reduce_scatter_base_":
            yield outputs[0], self._scattered(self._spread(sources[0]), self._pieces(sources[0]), axes)
        elif name == "reduce_scatter_":
            own = self._mesh.coordinates[axes[0]] if len(axes) == 1 else 0
            yield outputs[0], self._named_cut(sources[min(own, len(sources) - 1)], axes)
        else:
            lost = axes if name.startswith("alltoall") else ()
            yield from ((tensor, whole(tuple(tensor.shape)).with_unknown(lost)) for tensor in outputs)

    def _axes(self, group: Any) -> tuple[str, ...]:
        """Gives the axes of the mesh that a group of a collective spans."""
        try:
            if isinstance(group, str):
                group = torch.distributed.distributed_c10d._resolve_process_group(group)  # type: ignore[arg-type]
            ranks = torch.distributed.get_process_group_ranks(group)
        except (ValueError, TypeError, RuntimeError, KeyError, AttributeError):
            return self._mesh.axes
        return self._mesh.axes_of(ranks)

    def _gathered(self, spread: Spread, axes: Sequence[str]) -> Pieces:
        """Gives the parts of all ranks, one after the other along dimension 0."""
        if len(axes) != 1:
            return Pieces((spread.with_unknown(axes),))
        own, size = self._mesh.coordinates[axes[0]], self._mesh.sizes[axes[0]]
        parts = [at_coordinate(spread, axes[0], own, other, size) for other in range(size)]
        known = [part for part in parts if part is not None]
        return Pieces(tuple(known) if len(known) == size else (spread.with_unknown(axes),))

    def _scattered(self, spread: Spread, pieces: Pieces | None, axes: Sequence[str]) -> Spread:
        """Gives the rank's part of what is reduced and cut along dimension 0."""
        if len(axes) != 1:
            return spread.with_unknown(axes)  # of another shape: not known at all
        own, count = self._mesh.coordinates[axes[0]], self._mesh.sizes[axes[0]]
        if pieces is not None and len(pieces.parts) == count:
            return named(completed(pieces.parts[own], axes), axes[0])
        done = completed(spread, axes)
        first = done.dims[0]
        if len(first) != 1 or not is_plain(first) or first[0].size % count:
            return done.with_unknown(axes)
        length = first[0].size // count
        return done.cut(axes[0], 0, ((own * length, length),), first[0].size)

    # -- tensors that are the parts of several ranks, one after the other

    def _pieces(self, tensor: torch.Tensor) -> Pieces | None:
        inner = _inner(tensor)
        known = self._storages.of(inner).spreads
        found = known.get(stretch_of(inner)) if known else None
        return found if isinstance(found, Pieces) else None

    def _of_pieces(self, call: Call, found: Pieces) -> bool:
        """Follows operators that take the parts of several ranks apart; tells whether this was one."""
        parts = found.taken_apart(call)
        if parts is not None:
            for output, spread in zip(call.outputs, parts, strict=True):
                self.tell(output, spread)
            return True
        whole_again = found.joined()
        if whole_again is not None:
            self.tell(call.args[0], whole_again)
            return False
        for output in call.outputs:
            self.tell(output, whole(tuple(output.shape)).with_unknown(found.axes))
        return True

    def _cut(self, call: Call) -> None:
        """Remembers which entries of a whole dimension the outputs of a split are."""
        dim = call.arg(2, "dim", 0) % call.args[0].ndim
        size, position = call.args[0].shape[dim], 0
        for output in call.outputs:
            storage = self._storages.of(_inner(output))
            self._cuts[id(storage), stretch_of(output)] = (storage, dim, (position, output.shape[dim]), size)
            position += output.shape[dim]

    def _keep_cut(self, call: Call) -> None:
        known = self._cut_of(call.args[0])
        if known is not None:
            storage = self._storages.of(_inner(call.outputs[0]))
            self._cuts[id(storage), stretch_of(call.outputs[0])] = (storage, *known[1:])

    def _cut_of(self, tensor: torch.Tensor) -> tuple[Any, int, tuple[int, int], int] | None:
        """Gives which entries of a whole dimension a tensor is: storage, dimension, start and length, size."""
        storage = self._storages.of(_inner(tensor))
        known = self._cuts.get((id(storage), stretch_of(_inner(tensor))))
        return known if known is not None and known[0] is storage else None

    def _named_cut(self, tensor: torch.Tensor, axes: Sequence[str]) -> Spread:
        """Gives the spread of a slice of a whole dimension that a collective has given to this rank."""
        spread, known = completed(self._spread(tensor), axes), self._cut_of(tensor)
        if known is None or len(axes) != 1:
            return spread if known is None else spread.with_unknown(axes)
        return spread.cut(axes[0], known[1], (known[2],), known[3])

    def _stacked(self, call: Call) -> None:
        """Remembers that slices of a whole dimension were put one after the other along dimension 0."""
        cuts = [self._cut_of(tensor) for tensor in call.args[0]]
        dims = {(cut[1], cut[3]) if cut is not None else None for cut in cuts}
        if len(cuts) < 2 or len(dims) != 1 or None in dims or call.arg(1, "dim", 0) % call.outputs[0].ndim:
            return
        parts = []
        for tensor, cut in zip(call.args[0], cuts, strict=True):
            if cut is None or cut[1] == 0:
                return
            spread = self._spread(tensor)
            dims_of_part = list(spread.dims)
            dims_of_part[cut[1]] = (Factor(cut[3], (cut[2],)),)
            parts.append(replace(spread, dims=tuple(dims_of_part)))
        self.tell(call.outputs[0], Pieces(tuple(parts)))


def _inner(tensor: Any) -> torch.Tensor:
    """Takes the wrapper of a functional collective off, without waiting for it."""
    while type(tensor).__name__ == "AsyncCollectiveTensor":
        tensor = tensor.elem
    return tensor._local_tensor if is_dtensor(tensor) else tensor  # type: ignore[no-any-return]


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)


def _group_of(args: Sequence[Any]) -> Any:
    """Finds the process group among the arguments of a collective."""
    for arg in args:
        if isinstance(arg, torch.ScriptObject):
            return torch.distributed.ProcessGroup.unbox(arg)
        if isinstance(arg, torch.distributed.ProcessGroup):
            return arg
    return None
