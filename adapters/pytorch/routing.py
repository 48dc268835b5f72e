"""Derives from the result of a router of experts what it does: load, entropy, dropped tokens, likeness of experts.

A router is a module whose class says so (``TopKRouter``, ``MoEGate``), or one called ``router`` or ``gate`` beside a
module called ``experts``. Its result may be logits, or a tuple with chosen experts (integers) or a map of tokens to
experts (booleans). Nothing is waited for.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from msprobe.adapters.pytorch.guard import guarded
from msprobe.adapters.pytorch.isolation import isolated
from msprobe.adapters.pytorch.structures import result_tensors
from msprobe.core.sites import Role

if TYPE_CHECKING:
    from msprobe.adapters.pytorch.attribution import ModuleCall
    from msprobe.adapters.pytorch.guard import Failures
    from msprobe.adapters.pytorch.nodes import WatchedModule
    from msprobe.adapters.pytorch.observing import Observer

_CLASS: Final = re.compile(r"Router|MoE\w*Gate|TopK\w*Gate|Gat(e|ing)Network")
_NAMES: Final = frozenset({"router", "gate", "wg", "switch"})
#: More outputs than this are no experts.
_MOST_EXPERTS: Final = 4096

Derive = Callable[["WatchedModule", "ModuleCall", Any], object]


class Routers:
    """Finds routers and records what is derived from their results."""

    def __init__(self, observer: Observer, failures: Failures) -> None:
        self.failures = failures
        self._observer = observer
        self._recorder = observer.recorder

    def of(self, name: str, module: torch.nn.Module, parent: torch.nn.Module | None) -> Derive | None:
        """Gives what is to be called with each result of the module ``name`` of a parent; None if it is no router."""
        beside = parent is not None and any("expert" in child for child in parent._modules)
        if not _CLASS.search(type(module).__name__) and not (name in _NAMES and beside):
            return None
        weight = getattr(module, "weight", None)
        if weight is None:
            weight = next((p for p in module.parameters() if p.dim() == 2), None)
        return lambda watched, call, output: self.result(watched, call, output, weight)

    @guarded
    def result(self, watched: WatchedModule, call: ModuleCall, output: Any, weight: Tensor | None) -> None:
        """Records what one result says."""
        with isolated():
            found = list(derived([tensor for _, tensor in result_tensors(output)], weight, first=call.call == 0))
        for name, tensor in found:
            site = self._recorder.site(call.node, call.direction, Role.DERIVED, f"router.{name}", call.call)
            self._observer.value(site, tensor, watched.what, call.micro_step)


def derived(results: list[Tensor], weight: Tensor | None, *, first: bool = True) -> Iterator[tuple[str, Tensor]]:
    """Gives small tensors by name.

    ``load`` is the share of assignments of each expert, ``entropy`` that of the router's probabilities in nats, one for
    each token, ``dropped_tokens`` the count of assignments to no expert, ``similarity`` for each expert the largest
    cosine of its row of the router's weight with that of another.
    """
    experts = _num_experts(results, weight)
    if experts is None:
        return
    chosen = next((r for r in results if not r.is_floating_point() and r.dtype != torch.bool and r.dim() > 0), None)
    mapped = next((r for r in results if r.dtype == torch.bool and r.dim() > 1 and r.shape[-1] == experts), None)
    scores = next((r for r in results if r.is_floating_point() and r.dim() > 1 and r.shape[-1] == experts), None)
    if mapped is not None:
        counts = mapped.reshape(-1, experts).sum(0)
        yield "load", counts / counts.sum().clamp(min=1)
    elif chosen is not None:
        flat = chosen.reshape(-1).long()
        kept = (flat >= 0) & (flat < experts)
        counts = torch.zeros(experts, device=flat.device).scatter_add_(0, flat.clamp(0, experts - 1), kept.float())
        yield "load", counts / counts.sum().clamp(min=1)
        yield "dropped_tokens", (~kept).sum().reshape(1)
    if scores is not None:
        shares = _probabilities(scores.detach().reshape(-1, experts).float())
        yield "entropy", torch.special.entr(shares).sum(-1)
        if mapped is None and chosen is None:
            yield "load", shares.mean(0)
    if first and weight is not None and weight.shape == (experts, *weight.shape[1:]) and weight.dim() == 2:
        rows = torch.nn.functional.normalize(weight.detach().float(), dim=1)
        alike = rows @ rows.T
        yield "similarity", alike.fill_diagonal_(-1.0).amax(1)


def _num_experts(results: list[Tensor], weight: Tensor | None) -> int | None:
    if weight is not None and weight.dim() == 2 and any(weight.shape[0] == r.shape[-1] for r in results if r.dim() > 1):
        return int(weight.shape[0])
    if weight is not None and weight.dim() == 2 and len(results) > 1 and weight.shape[0] <= _MOST_EXPERTS:
        return int(weight.shape[0])
    widths = [r.shape[-1] for r in results if r.is_floating_point() and r.dim() > 1]
    return int(max(widths)) if widths and max(widths) <= _MOST_EXPERTS else None


def _probabilities(scores: Tensor) -> Tensor:
    """Gives probabilities: the scores themselves where their rows are that already, else their softmax."""
    total = scores.sum(-1, keepdim=True)
    proper = (scores.amin(-1, keepdim=True) >= 0) & ((total - 1).abs() < 1e-2)
    return torch.where(proper, scores, torch.softmax(scores, -1))
