"""Records tensors that the user hands over by name."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from msprobe.adapters.pytorch.gradients import GradientPlace
from msprobe.adapters.pytorch.structures import result_tensors
from msprobe.core.matching.tokens import SAVED_PREFIX
from msprobe.core.sites import Direction, NodeKind, Role

if TYPE_CHECKING:
    from msprobe.adapters.pytorch.attribution import Attribution
    from msprobe.adapters.pytorch.gradients import Gradients
    from msprobe.adapters.pytorch.observing import Observer


class Saves:
    """A saved name is a node ``<path of the module being called>/<name>``."""

    def __init__(self, observer: Observer, gradients: Gradients, attribution: Attribution) -> None:
        self._observer = observer
        self._gradients = gradients
        self._attribution = attribution
        self._calls: Counter[tuple[int, Direction, int]] = Counter()

    def record(self, name: str, value: Any) -> None:
        """Records the tensors of ``value`` now, and their gradients when they come."""
        recorder = self._observer.recorder
        place = self._attribution.place()
        node = recorder.node(f"{place.path or ''}/{name}", NodeKind.SAVE, "save", place.path)
        what = recorder.wants(node)
        if not what:
            return
        if name.startswith(SAVED_PREFIX):
            what |= {"tensors"}
        micro_step = recorder.micro_step if place.micro_step is None else place.micro_step
        key = (node, place.direction, micro_step)
        call = self._calls[key]
        self._calls[key] += 1
        for path, tensor in result_tensors(value):
            site = recorder.site(node, place.direction, Role.SAVED, path, call)
            self._observer.value(site, tensor, what, micro_step)
            if self._observer.tracer is not None:
                self._observer.tracer.seen_input(site, tensor)
            if tensor.requires_grad:
                gradient = GradientPlace(node, Direction.BACKWARD, Role.SAVED, path, call, what)
                self._gradients.watch_output(tensor, name, gradient, micro_step)

    def end_step(self) -> None:
        """Counts calls afresh."""
        self._calls.clear()
