"""Parameters held by FSDP1: slices of one flat parameter for each wrapped unit, padding left out."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from msprobe.adapters.pytorch.holdings import DataParallel, Found, place
from msprobe.adapters.pytorch.placed import Placed
from msprobe.core.placement import Layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch


class FlatPiece:
    """One parameter inside of a flat one; ``number`` counts the parameters of the unit."""

    def __init__(self, unit: Any, number: int, group: DataParallel) -> None:
        handle = unit._handle
        self._unit, self._handle, self._number = unit, handle, number
        self.group = group
        flat = handle.flat_param
        piece = flat._shard_param_infos[number]
        self._offset = piece.offset_in_shard or 0
        self._length = piece.numel_in_shard or 0
        self._name, self._module, _ = flat._param_infos[number]
        self._shape = tuple(flat._shapes[number])
        self._is_sharded = handle.uses_sharded_strategy
        self.layout = _layout(flat, number, piece, self._shape, group, is_sharded=self._is_sharded)
        self._slice: tuple[weakref.ref[torch.Tensor], torch.Tensor] | None = None

    @property
    def updated(self) -> torch.Tensor:
        """The original parameter, or the flat one where only that is kept."""
        flat = self._handle.flat_param
        found: torch.Tensor = flat if flat._params is None else flat._params[self._number]
        return found

    def part(self, tensor: torch.Tensor) -> torch.Tensor | Placed:
        """Gives this parameter's slice of what the optimizer keeps for ``updated``; other tensors as they are."""
        if tensor.shape != self.updated.shape:
            return tensor
        return self._cut(tensor) if self._handle.flat_param._params is None else self._shaped(tensor)

    def stored(self) -> Placed:
        """Gives the slice that this rank keeps, in full precision."""
        flat = self._handle.flat_param
        return self._cut(getattr(flat, "_local_shard", flat).detach())

    def used(self) -> torch.Tensor | None:
        """Gives the view of the gathered flat parameter that modules compute with."""
        found = getattr(self._module, self._name, None)
        return found if found is not None and tuple(found.shape) == self._shape and found.grad_fn is not None else None

    def gradient(self) -> Placed | None:
        """Gives the slice of the reduced gradient; None also while a gradient is only accumulated."""
        flat = self._handle.flat_param
        if flat._params is None:
            whole = flat.grad
            return None if whole is None or self._is_unreduced(whole) else self._cut_once(whole)
        if not self.updated.requires_grad:
            return None
        if self._length:
            found = flat._params[self._number].grad
            return None if found is None or found.numel() != self._length else self._shaped(found)
        whole = self._handle.sharded_grad if flat.grad is None or not self._is_unreduced(flat.grad) else None
        return None if whole is None or flat._is_grad_none_mask[self._number] else self._cut(whole)

    def reduces(self) -> bool:
        """Tells whether gradients are reduced: not inside of ``no_sync``."""
        return bool(self._unit._sync_gradients)

    def _is_unreduced(self, gradient: torch.Tensor) -> bool:
        size = self._handle.flat_param._unpadded_unsharded_size
        return self._is_sharded and self.group.size > 1 and gradient.shape == size

    def _cut_once(self, whole: torch.Tensor) -> Placed:
        """Cuts a tensor; the same one again gives the same slice, so that it is known again."""
        if self._slice is None or self._slice[0]() is not whole:
            self._slice = weakref.ref(whole), self._cut(whole).tensor
        return Placed(self._slice[1], self.layout)

    def _cut(self, whole: torch.Tensor) -> Placed:
        return self._shaped(whole.reshape(-1)[self._offset : self._offset + self._length])

    def _shaped(self, piece: torch.Tensor) -> Placed:
        return Placed(piece if self._is_sharded else piece.view(self._shape), self.layout)


def find_flat(root: torch.nn.Module) -> Iterator[Found]:
    """Gives the units of FSDP1 in a model."""
    unit: Any
    for unit in root.modules():
        if not any(kind.__name__ == "FullyShardedDataParallel" for kind in type(unit).__mro__):
            continue
        handle = unit._handle
        if handle is None:
            continue
        group = _data_parallel(unit)
        flat = handle.flat_param
        pieces = [FlatPiece(unit, number, group) for number in range(len(flat._param_infos))]
        parameters: list[tuple[torch.nn.Module, str, Any]] = []
        by_name = {}
        for piece, (name, module, _) in zip(pieces, flat._param_infos, strict=True):
            by_name[id(module), name] = piece
            parameters.append((module, name, piece))
        for name, module, _, first_name, first_module, _ in flat._shared_param_infos:
            parameters.append((module, name, by_name[id(first_module), first_name]))
        yield Found(unit, parameters, group, _facts(unit, group))


def _data_parallel(unit: Any) -> DataParallel:
    group, others = unit.process_group, getattr(unit, "_inter_node_pg", None)
    places = []
    if others is not None:
        places.append(place("dp", others))
    places.append(place("fsdp" if unit._handle.uses_sharded_strategy else "dp", group))
    divisor = unit._gradient_predivide_factor * unit._gradient_postdivide_factor
    return DataParallel(tuple(places), float(divisor))


def _layout(
    flat: Any, number: int, piece: Any, shape: tuple[int, ...], group: DataParallel, *, is_sharded: bool
) -> Layout:
    layout = Layout.whole(shape)
    if group.sizes.get("dp", 1) > 1:
        layout = layout.replicate("dp")
    if not is_sharded:
        return layout
    length = piece.numel_in_shard or 0
    layout = layout.slice_flat("fsdp", piece.intra_param_start_idx or 0, length)
    # A parameter that is not laid out row by row, or is itself a part of a tensor-parallel one.
    is_plain = flat._contiguities[number] and flat._param_extensions[number] is None
    return layout if is_plain else layout.unknown("fsdp")


def _facts(unit: Any, group: DataParallel) -> dict[str, Any]:
    facts = {
        "wrapper": "FullyShardedDataParallel",
        "sharding_strategy": getattr(unit.sharding_strategy, "name", str(unit.sharding_strategy)),
        "use_orig_params": bool(unit._use_orig_params),
        "gradient_divisor": group.divisor,
        "ranks": group.sizes,
    }
    for name in ("param_dtype", "reduce_dtype", "buffer_dtype"):
        dtype = getattr(unit.mixed_precision, name, None)
        if dtype is not None:
            facts[name] = str(dtype).removeprefix("torch.")
    return facts
