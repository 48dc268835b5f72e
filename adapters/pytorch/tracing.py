"""Data-flow edges between sites, found by following storages through every operator of one step.

For each storage the tracer knows the *sources*: the sites that its content was computed from, with no other site in
between. ``docs/architecture.md`` has the rules.

How the module hooks use it, in a step that is traced (no compiled module in the model)::

    tracer = Tracer(recorder)
    mode = tracer.mode()                         # at level op and mix OpRecorder does this part
    install(mode)                                # modes.install / modes.uninstall: safe anywhere between operators

    pre-hook:      tracer.enter(call)            # after attribution.enter(call)
                   tracer.seen_parameter(site, parameter)        # each direct parameter and buffer, at each call
                   tracer.seen_input(site, tensor)
    forward hook:  tracer.seen_output(site, tensor)              # before tracer.exit
                   tracer.exit(call)             # before attribution.exit(call); with always_call=True
    tensor hooks:  tracer.seen_gradient(site, gradient, micro_step)
    update:        tracer.seen_update(site, parameter.grad)

No method raises, waits, changes a tensor or keeps one alive. A tensor without storage is counted as a gap.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from msprobe.adapters.pytorch.attribution import ModuleCall
    from msprobe.core.recorder import Recorder
    from torch.utils._python_dispatch import TorchDispatchMode

#: A storage keeps at most this many sources, the most recent ones.
MAX_SOURCES = 64


class Tracer:
    """Follows what tensors are computed from, and gives the recorder the edges between sites."""

    def __init__(self, recorder: Recorder) -> None:
        raise NotImplementedError

    def enter(self, call: ModuleCall) -> None:
        """Begins a module call."""

    def exit(self, call: ModuleCall) -> None:
        """Ends a module call, and calls inside it that were left without a hook."""

    def seen_input(self, site: int, tensor: torch.Tensor) -> None:
        """Draws edges from the tensor's sources to an input of the innermost open call.

        The storage keeps its sources, unless it has none: then this site is where it entered the model.
        """

    def seen_parameter(self, site: int, tensor: torch.Tensor) -> None:
        """Makes the site of a parameter or buffer the source of its storage."""

    def seen_output(self, site: int, tensor: torch.Tensor) -> None:
        """Draws edges to an output of the innermost open call and makes the site the tensor's source.

        A source outside of the call is replaced by those of the call's own inputs that it reached.
        """

    def seen_gradient(self, site: int, tensor: torch.Tensor, micro_step: int | None = None) -> None:
        """Draws edges to a gradient (direction backward, any role) and makes the site its source.

        ``micro_step`` is the one in which the forward ran; None is the recorder's present one.
        """

    def seen_update(self, site: int, tensor: torch.Tensor) -> None:
        """Draws edges to an accumulated gradient from the gradients of all micro-steps of this step."""

    def mode(self) -> TorchDispatchMode:
        """Gives the dispatch mode that follows operators at level module."""
        raise NotImplementedError

    def new_step(self) -> None:
        """Forgets everything; to be called at the end of the traced step."""
