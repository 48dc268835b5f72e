"""Moves the inputs of a model by one rounding, to find out how far rounding alone takes its results.

Every floating-point element goes to the neighbouring number, up or down by a seeded coin. A model whose inputs are all
integers (token ids) has the outputs of its embeddings moved instead. Zeros and non-finite elements stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Perturbation:
    """Perturbs the models until it is removed."""

    def __init__(self, models: Mapping[str, torch.nn.Module], seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._through_embeddings = False
        self._depth = 0
        self._handles: list[Any] = []
        for model in models.values():
            self.add(model)

    def add(self, model: torch.nn.Module) -> None:
        """Perturbs one more model."""
        self._handles.append(model.register_forward_pre_hook(self._inputs, with_kwargs=True, prepend=True))
        for module in model.modules():
            if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)):
                self._handles.append(module.register_forward_hook(self._embedded, prepend=True))

    def remove(self) -> None:
        """Stops perturbing."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _inputs(
        self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        moved = [0]
        new_args = tuple(self._moved(value, moved) for value in args)
        new_kwargs = {name: self._moved(value, moved) for name, value in kwargs.items()}
        self._through_embeddings = not moved[0]
        return new_args, new_kwargs

    def _embedded(self, module: torch.nn.Module, args: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor | None:
        return moved_by_one_rounding(output, self._generator) if self._through_embeddings else None

    def _moved(self, value: Any, moved: list[int]) -> Any:
        """Perturbs floating-point tensors in plain tuples, lists and dicts; leaves everything else alone."""
        if isinstance(value, torch.Tensor):
            if not _movable(value):
                return value
            moved[0] += 1
            return moved_by_one_rounding(value, self._generator)
        if type(value) in (tuple, list):
            return type(value)(self._moved(item, moved) for item in value)
        if type(value) is dict:
            return {name: self._moved(item, moved) for name, item in value.items()}
        return value


def moved_by_one_rounding(tensor: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Gives the tensor with every element at a neighbouring number of its format; gradients pass unchanged."""
    with torch.no_grad():
        source = tensor.detach().contiguous()
        signs = torch.randint(0, 2, source.shape, generator=generator, dtype=torch.int8).to(source.device) * 2 - 1
        bits = source.view(_INTEGERS[source.element_size()])
        neighbour = (bits + signs.to(bits.dtype)).view(source.dtype)
        keep = (source == 0) | ~torch.isfinite(source) | ~torch.isfinite(neighbour)
        neighbour = torch.where(keep, source, neighbour)
    if not tensor.requires_grad:
        return neighbour
    return tensor + (neighbour - source)


def _movable(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() and tensor.layout is torch.strided and tensor.element_size() > 1
