"""Keeps the few autograd formulas that compute otherwise under a dispatch mode from doing so.

Some backward formulas ask whether any dispatch mode is active and then take a path that rounds differently. Found by
running every sample of torch's operator database (2.13) with and without a mode: the gradients of ``prod``, and of
``masked_fill`` with respect to a tensor value. Such a node is evaluated without the mode and stands as one operator,
``autograd.ProdBackward1``.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch

from msprobe.adapters.pytorch.modes import install, uninstall
from msprobe.adapters.pytorch.operators import Operands, Operator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch.utils._python_dispatch import TorchDispatchMode

_OPERATORS = frozenset(
    {"aten.prod.default", "aten.prod.dim_int", "aten.masked_fill.Tensor", "aten.masked_fill_.Tensor"}
)
_NODES = ("ProdBackward", "MaskedFillBackward1")
_SAVED = ("_saved_self", "_saved_result", "_saved_mask")


class Formulas:
    """Watches the outputs of one mode for autograd nodes that must run without it.

    ``begin`` is called before such a node runs, with an operator that stands for it, and gives what ``end`` gets after.
    """

    def __init__(
        self,
        mode: TorchDispatchMode,
        begin: Callable[[Operator, Operands], Any],
        end: Callable[[Any, list[torch.Tensor]], None],
    ) -> None:
        self._mode = mode
        self._begin = begin
        self._end = end
        self._waiting: list[weakref.ref[torch.Tensor]] = []

    def ran(self, operator: Operator, outputs: Iterable[torch.Tensor]) -> None:
        """Looks at what an operator made; its autograd node exists only after the operator has returned."""
        if self._waiting:
            self._settle()
        if operator.name in _OPERATORS and torch._C._current_graph_task_id() < 0:
            self._waiting.extend(weakref.ref(tensor) for tensor in outputs)

    def _settle(self) -> None:
        waiting, self._waiting = self._waiting, []
        for reference in waiting:
            tensor = reference()
            node = tensor.grad_fn if tensor is not None else None
            if node is not None and node.name().startswith(_NODES):
                self._hook(node)

    def _hook(self, node: Any) -> None:
        operator = Operator(f"autograd.{node.name()}")
        under_way: list[Any] = []

        def before(gradients: tuple[torch.Tensor | None, ...]) -> None:
            if uninstall(self._mode):
                tensors = [(f"gradient.{i}", g) for i, g in enumerate(gradients) if g is not None]
                under_way.append(self._begin(operator, Operands([*tensors, *_saved(node)], [])))

        def after(gradients: tuple[torch.Tensor | None, ...], _: Any) -> None:
            if under_way:
                self._end(under_way.pop(), [g for g in gradients if g is not None])
                install(self._mode)

        node.register_prehook(before)
        node.register_hook(after)


def _saved(node: Any) -> list[tuple[str, torch.Tensor]]:
    found = []
    for name in _SAVED:
        try:
            value = getattr(node, name, None)
        except RuntimeError:  # freed by an earlier backward pass
            continue
        if isinstance(value, torch.Tensor):
            found.append((name.removeprefix("_saved_"), value))
    return found
