"""Hands tensors to the recorder and the tracer, each content once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msprobe.adapters.pytorch.placed import Placed, plain_of
from msprobe.adapters.pytorch.seen import SeenTensors, is_transformed

if TYPE_CHECKING:
    import torch

    from msprobe.adapters.pytorch.batches import Samples
    from msprobe.adapters.pytorch.tracing import Tracer
    from msprobe.core.recorder import Recorder


class Observer:
    """Observes tensors at sites. ``tracer`` is there in the traced step only."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.seen = SeenTensors()
        self.tracer: Tracer | None = None
        #: This rank's samples in the forward pass under way, on data-parallel ranks.
        self.samples: Samples | None = None

    def value(self, site: int, tensor: torch.Tensor | Placed, what: frozenset[str], micro_step: int) -> int:
        """Records a tensor at a site, by reference to an earlier record when the content is known.

        Gives the record's number, -1 when nothing is recorded.
        """
        plain = plain_of(tensor)
        if is_transformed(plain):
            self.recorder.event("gap", "tensors inside torch.func transforms have no values of their own")
            return -1
        seen = self.seen.look(plain)
        share = seen.seq if seen is not None else None
        seq = self.recorder.observe(site, tensor, what=what, micro_step=micro_step, share=share)
        if seen is not None and seq >= 0:
            seen.seq = seq
        return seq

    def activation(self, site: int, tensor: torch.Tensor, what: frozenset[str], micro_step: int) -> None:
        """Records what a module is called with or gives back: on data-parallel ranks a part of the batch."""
        part = tensor if self.samples is None else self.samples.activation(tensor)
        self.value(site, part, what, micro_step)

    def gradient(self, site: int, gradient: torch.Tensor | Placed, what: frozenset[str], micro_step: int) -> None:
        """Records a gradient, which belongs to the micro-step that its forward ran in."""
        self.value(site, gradient, what, micro_step)
        if self.tracer is not None:
            self.tracer.seen_gradient(site, plain_of(gradient), micro_step)

    def end_step(self) -> None:
        """Forgets the tensors of the step."""
        self.seen.clear()
        self.samples = None
