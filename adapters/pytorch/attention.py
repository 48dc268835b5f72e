"""Derives entropy and largest logit of attention where its weights are computed: in eager attention's softmax.

``torch.nn.functional.softmax`` and ``torch.softmax`` are wrapped while a recording asks for it, and looked at inside of
modules whose class is called attention. Fused kernels (``scaled_dot_product_attention``) never show their weights, so
nothing is recorded of them.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor

from msprobe.adapters.pytorch.guard import guarded
from msprobe.adapters.pytorch.isolation import isolated
from msprobe.adapters.pytorch.seen import is_transformed
from msprobe.core.sites import Direction, Role

if TYPE_CHECKING:
    from msprobe.adapters.pytorch.attribution import Attribution
    from msprobe.adapters.pytorch.guard import Failures
    from msprobe.adapters.pytorch.nodes import WatchedModule
    from msprobe.adapters.pytorch.observing import Observer

#: Dimensions that weights of attention have at least: (heads or batch, queries, keys).
_DIMENSIONS: Final = 3


class AttentionWeights:
    """Watches softmax inside of attention modules; ``active`` tells whether to record."""

    def __init__(
        self,
        observer: Observer,
        attribution: Attribution,
        failures: Failures,
        active: Callable[[], bool],
        *,
        on: bool,
    ) -> None:
        self.failures = failures
        self._observer, self._recorder = observer, observer.recorder
        self._attribution, self._active = attribution, active
        #: Attention modules by their paths.
        self.modules: dict[str, WatchedModule] = {}
        self._calls: Counter[tuple[int, Direction, int]] = Counter()
        self._undo: list[Callable[[], None]] = []
        if on:
            for owner, name in ((torch.nn.functional, "softmax"), (torch, "softmax")):
                self._wrap(owner, name)

    def end_step(self) -> None:
        """Counts calls afresh."""
        self._calls.clear()

    def remove(self) -> None:
        """Puts the functions back."""
        while self._undo:
            self._undo.pop()()

    def _wrap(self, owner: Any, name: str) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def softmax(*args: Any, **kwargs: Any) -> Any:
            result = original(*args, **kwargs)
            if not torch.compiler.is_compiling() and self._active():
                self.computed(args[0] if args else kwargs.get("input"), result)
            return result

        def restore() -> None:
            if getattr(owner, name) is softmax:
                setattr(owner, name, original)

        setattr(owner, name, softmax)
        self._undo.append(restore)

    @guarded
    def computed(self, logits: Any, weights: Any) -> None:
        """Records what a softmax inside an attention module has computed."""
        if not isinstance(weights, Tensor) or weights.dim() < _DIMENSIONS or not isinstance(logits, Tensor):
            return
        place = self._attribution.place()
        known = self.modules.get(place.path) if place.path is not None else None
        if known is None or not known.what or is_transformed(weights):
            return
        node, what = known.node, known.what
        micro_step = self._recorder.micro_step if place.micro_step is None else place.micro_step
        call = self._calls[node, place.direction, micro_step]
        self._calls[node, place.direction, micro_step] += 1
        with isolated():
            found = derived(logits.detach(), weights.detach())
        for name, tensor in found.items():
            site = self._recorder.site(node, place.direction, Role.DERIVED, f"attention.{name}", call)
            self._observer.value(site, tensor, what, micro_step)


def derived(logits: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Gives for each head the mean entropy of its rows, in nats, and its largest logit that is finite.

    Heads are the third dimension from the end but one, as in (batch, heads, queries, keys).
    """
    rows = torch.special.entr(weights.float()).sum(-1)
    seen = torch.where(torch.isfinite(logits), logits, -torch.inf)
    but_heads = [d for d in range(rows.dim()) if d != rows.dim() - 2] if rows.dim() > 2 else [rows.dim() - 1]
    return {"entropy": rows.mean(but_heads), "max_logit": seen.amax(-1).amax(but_heads).float()}


def is_attention(module: torch.nn.Module) -> bool:
    """Tells whether a module's class is called attention."""
    return "attention" in type(module).__name__.lower() or "Attn" in type(module).__name__
