"""Hands tensors to the recorder and the tracer, each content once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from msprobe.adapters.pytorch.dtensors import is_dtensor
from msprobe.adapters.pytorch.gathered import Gathered
from msprobe.adapters.pytorch.placed import Placed, plain_of
from msprobe.adapters.pytorch.seen import SeenTensors, is_transformed

if TYPE_CHECKING:
    from msprobe.adapters.pytorch.batches import Samples
    from msprobe.adapters.pytorch.contents import Content, Contents
    from msprobe.adapters.pytorch.gradients import GradientWatch
    from msprobe.adapters.pytorch.parallel.layouts import Layouts
    from msprobe.adapters.pytorch.tracing import Tracer
    from msprobe.core.recorder import Recorder


_PLAIN: Final = (torch.Tensor, torch.nn.Parameter)


class Observer:
    """Observes tensors at sites. ``tracer`` is there in the traced step only."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.seen = SeenTensors()
        self.gathered = Gathered()
        self.tracer: Tracer | None = None
        #: What operators have written, where they are watched: it knows the same content in another tensor, too.
        self.contents: Contents | None = None
        #: This rank's samples in the forward pass under way, on data-parallel ranks.
        self.samples: Samples | None = None
        #: How tensors lie in the whole ones, on a mesh of several ranks.
        self.layouts: Layouts | None = None

    def value(
        self,
        site: int,
        tensor: torch.Tensor | Placed,
        what: frozenset[str],
        micro_step: int,
        samples: Samples | None = None,
    ) -> int:
        """Records a tensor at a site, by reference to an earlier record when the content is known.

        ``samples`` are those that an activation belongs to. Gives the record's number, -1 when nothing is recorded.
        """
        spread = None
        if self.layouts is not None and not isinstance(tensor, Placed) and not is_transformed(tensor):
            spread = self.layouts.at_site(site, tensor)
            tensor = self.layouts.placed(tensor, spread)
        if samples is not None:
            tensor = samples.activation(tensor)
        plain = plain_of(tensor)
        if is_transformed(plain):
            self.recorder.event("gap", "tensors inside torch.func transforms have no values of their own")
            return -1
        if self.contents is not None and plain is tensor and type(plain) in _PLAIN:
            content = self.contents.look(plain, what)
            if content.status is None:
                return self._known_to_operators(site, plain, what, micro_step, content)
        placed = tensor if isinstance(tensor, Placed) else None
        followed = not is_dtensor(tensor) if placed is None else placed.followed
        layout = None if placed is None else placed.layout
        seen = self.seen.look(plain) if followed else None
        share = seen.seq if seen is not None and seen.layout == layout else None
        seq = self.recorder.observe(site, tensor, what=what, micro_step=micro_step, share=share)
        if seen is not None and seq >= 0:
            seen.seq, seen.layout, seen.spread = seq, layout, spread
        return seq

    def _known_to_operators(
        self, site: int, tensor: torch.Tensor, what: frozenset[str], micro_step: int, content: Content
    ) -> int:
        """Records a tensor by reference to a record that an operator or a module made of its storage."""
        seq = self.recorder.observe(
            site, tensor, what=what, micro_step=micro_step, share=content.seq, reshaped=content.is_reshaped
        )
        if content.seq is None and seq >= 0:
            content.keep(seq)
        return seq

    def activation(self, site: int, tensor: torch.Tensor, what: frozenset[str], micro_step: int) -> None:
        """Records what a module is called with or gives back: on data-parallel ranks a part of the batch."""
        self.value(site, tensor, what, micro_step, self.samples)

    def gradient(  # what a hook on a tensor knows
        self,
        site: int,
        gradient: torch.Tensor | Placed,
        what: frozenset[str],
        micro_step: int,
        watch: GradientWatch | None = None,
    ) -> None:
        """Records a gradient, which belongs to the micro-step that its forward ran in; ``watch`` saw it arrive."""
        part = gradient
        if watch is not None and self.layouts is not None and not isinstance(part, Placed):
            part = self.layouts.gradient(site, part, watch.spread, of_parameter=watch.micro_step is None)
        if watch is not None and watch.placed is not None:
            part = watch.placed(part)
        seq = self.value(site, part, what, micro_step)
        if seq >= 0 and part is gradient and watch is not None and watch.micro_step is None and self._reads_alike(part):
            self.gathered.note(plain_of(part), seq)
        if self.tracer is not None:
            self.tracer.seen_gradient(site, plain_of(gradient), micro_step)

    def update(self, site: int, gradient: torch.Tensor | Placed, what: frozenset[str]) -> int:
        """Records the gradient that an optimizer consumes, by reference where it is the one that backward gave."""
        known = self.gathered.find(plain_of(gradient)) if self._reads_alike(gradient) else None
        if known is None:
            return self.value(site, gradient, what, 0)
        return self.recorder.observe(site, gradient, what=what, micro_step=0, share=known)

    def _reads_alike(self, gradient: torch.Tensor | Placed) -> bool:
        """Tells whether the same tensor has the same record wherever it is met, and nobody watches what is written."""
        return type(gradient) is torch.Tensor and self.layouts is None and self.contents is None

    def consumed(self, path: str, parameter: torch.Tensor, tensor: torch.Tensor | Placed) -> torch.Tensor | Placed:
        """Gives what an optimizer consumes or keeps of a parameter, which must lie as the parameter does."""
        if self.layouts is None or isinstance(tensor, Placed):
            return tensor
        for axis in self.layouts.still_partial(tensor):
            message = f"the optimizer consumes a gradient that was never summed over the ranks along axis {axis}"
            self.recorder.event("unreduced", message, path)
        return self.layouts.consumed(parameter, tensor)

    def end_step(self) -> None:
        """Forgets the tensors of the step."""
        self.seen.clear()
        self.gathered.clear()
        self.samples = None
