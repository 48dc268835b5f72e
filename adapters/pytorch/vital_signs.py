"""What is watched besides modules' tensors: numbers of the step, collectives, routers, attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msprobe.adapters.pytorch.attention import AttentionWeights, is_attention
from msprobe.adapters.pytorch.collectives import Collectives
from msprobe.adapters.pytorch.routing import Routers
from msprobe.adapters.pytorch.training_scalars import TrainingScalars

if TYPE_CHECKING:
    import torch

    from msprobe.adapters.pytorch.attribution import Attribution
    from msprobe.adapters.pytorch.guard import Failures
    from msprobe.adapters.pytorch.nodes import WatchedModule
    from msprobe.adapters.pytorch.observing import Observer
    from msprobe.core.options import RecordOptions


class VitalSigns:
    """The parts that the options ask for; ``active`` tells whether the present step is recorded."""

    def __init__(
        self,
        observer: Observer,
        attribution: Attribution,
        options: RecordOptions,
        failures: Failures,
        active: Callable[[], bool],
    ) -> None:
        self.scalars = TrainingScalars(observer.recorder, failures, on=options.scalars)
        self._collectives = Collectives(observer, attribution, failures, active, on=options.collectives)
        self._attention = AttentionWeights(observer, attribution, failures, active, on=options.attention)
        self._routers = Routers(observer, failures) if options.routing else None

    def declared(self, watched: WatchedModule, module: torch.nn.Module, parent: torch.nn.Module | None) -> None:
        """Hears of a module that is watched, or watched otherwise than before."""
        if is_attention(module):
            self._attention.modules[watched.path] = watched
        if self._routers is not None:
            watched.derive = self._routers.of(watched.path.rpartition(".")[2], module, parent)

    def end_step(self) -> None:
        """Counts calls afresh."""
        self._collectives.end_step()
        self._attention.end_step()

    def remove(self) -> None:
        """Lets go of everything that is wrapped."""
        self.scalars.remove()
        self._collectives.remove()
        self._attention.remove()
