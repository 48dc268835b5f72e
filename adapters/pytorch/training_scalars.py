"""Hears of the numbers of a step that a training loop has anyway: learning rates, the norm that clipping computed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.utils import clip_grad

from msprobe.adapters.pytorch.guard import guarded

if TYPE_CHECKING:
    from msprobe.adapters.pytorch.guard import Failures
    from msprobe.core.recorder import Recorder

#: Inside ``clip_grad_norm_``: looked up when it runs, so that programs which imported it by name are heard as well.
_INNER = "_clip_grads_with_norm_"


class ClippedNorms:
    """Calls ``heard(name, value)`` with the gradient norm and its limit whenever gradients are clipped by norm.

    The norm is that before clipping. Nothing is read: on a device it is a tensor. A sharded norm that is not reduced
    yet (``DTensor``) is called ``grad_norm_local``: the part of this rank.
    """

    def __init__(self, heard: Callable[[str, Any], None]) -> None:
        self._heard = heard
        self._undo: list[Callable[[], None]] = []
        name = _INNER if hasattr(clip_grad, _INNER) else "clip_grad_norm_"
        self._wrap(clip_grad, name, self._around_inner if name == _INNER else self._around_whole)
        if name != _INNER:
            self._wrap(torch.nn.utils, name, self._around_whole)

    def remove(self) -> None:
        """Stops hearing."""
        while self._undo:
            self._undo.pop()()

    def _wrap(self, owner: Any, name: str, around: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        replacement = around(original)

        def restore() -> None:
            if getattr(owner, name) is replacement:
                setattr(owner, name, original)

        setattr(owner, name, replacement)
        self._undo.append(restore)

    def _around_inner(self, original: Any) -> Any:
        @functools.wraps(original)
        def clip(parameters: Any, max_norm: float, total_norm: Any, *args: Any, **kwargs: Any) -> Any:
            self._tell(total_norm, max_norm)
            return original(parameters, max_norm, total_norm, *args, **kwargs)

        return clip

    def _around_whole(self, original: Any) -> Any:
        @functools.wraps(original)
        def clip(parameters: Any, max_norm: float, *args: Any, **kwargs: Any) -> Any:
            total_norm = original(parameters, max_norm, *args, **kwargs)
            self._tell(total_norm, max_norm)
            return total_norm

        return clip

    def _tell(self, norm: Any, limit: Any) -> None:
        if not self._undo or torch.compiler.is_compiling():
            return
        placements = getattr(norm, "placements", None)
        whole = placements is None or all(placement.is_replicate() for placement in placements)
        self._heard("grad_norm" if whole else "grad_norm_local", norm)
        if isinstance(limit, int | float):
            self._heard("grad_norm_limit", limit)


class TrainingScalars:
    """Notes the numbers of a step in a recording; ``on`` tells whether also those that nobody logs."""

    def __init__(self, recorder: Recorder, failures: Failures, *, on: bool) -> None:
        self.failures = failures
        self._recorder = recorder
        self._on = on
        self._clipped = ClippedNorms(self._heard) if on else None

    def log(self, scalars: Mapping[str, Any], step: int) -> None:
        """Notes numbers of a step, if it is one that is recorded."""
        if self._recorder.records(step):
            for name, value in scalars.items():
                self._recorder.scalar(name, value, step=step)

    def begins(self, optimizer: Any) -> None:
        """Notes the learning rates of an optimizer that is about to step."""
        if self._on:
            for name, value in learning_rates(optimizer):
                self._recorder.scalar(name, value)

    @guarded
    def returned(self, output: Any) -> None:
        """Notes the loss that a whole model returns."""
        loss = loss_of(output) if self._on else None
        if loss is not None:
            self._recorder.scalar("loss", loss)

    @guarded
    def scaled(self, scaler: Any) -> None:
        """Notes by what a gradient scaler has multiplied the loss: the gradients of the step carry it."""
        if self._recorder.recording:
            self._recorder.fact(None, "gradient", "loss_scale", scaler.get_scale())

    @guarded
    def skipped(self, scaler: Any) -> None:
        """Hears that a gradient scaler left an optimizer's step out."""
        scale = scaler.get_scale()
        message = f"the gradient scaler found non-finite gradients at scale {scale:g}: no update"
        self._recorder.event("scaler_skip", message)
        self._recorder.scalar("scaler_skip", scale)

    def remove(self) -> None:
        """Stops hearing."""
        if self._clipped is not None:
            self._clipped.remove()

    def _heard(self, name: str, value: Any) -> None:
        if self._recorder.recording:
            self._recorder.scalar(name, value)


def learning_rates(optimizer: Any) -> Iterator[tuple[str, Any]]:
    """Gives the learning rate of each group, ``lr`` if there is one group, else ``lr.0`` and so on."""
    groups = optimizer.param_groups
    for index, group in enumerate(groups):
        rate = group.get("lr")
        if isinstance(rate, int | float | torch.Tensor):
            yield ("lr" if len(groups) == 1 else f"lr.{index}"), rate


def loss_of(output: Any) -> Any:
    """Gives the loss inside a model's result, as models of Hugging Face return it; None if there is none."""
    loss = output.get("loss") if isinstance(output, dict) else getattr(output, "loss", None)
    return loss if isinstance(loss, torch.Tensor) and loss.numel() == 1 else None
