"""Records every operator, forward and backward, below autograd: level op and mix.

``OpRecorder`` is a dispatch mode. The session installs it (``modes.install``) while a step is recorded, keeps
``attribution`` fed from the module hooks, and at level op passes ``tracer`` in the traced step::

    ops = OpRecorder(recorder, attribution, options)
    ops.tracer = Tracer(recorder)     # in the traced step; None afterwards. The hooks feed the same tracer
    install(ops)
    ...
    uninstall(ops)
    ops.new_step()                    # before recorder.end_step()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    import torch
    from msprobe.adapters.pytorch.attribution import Attribution
    from msprobe.adapters.pytorch.tracing import Tracer
    from msprobe.core.options import RecordOptions
    from msprobe.core.recorder import Recorder


def refuse_compiled(model: torch.nn.Module, options: RecordOptions, recorder: Recorder) -> None:
    """Refuses op level for a model that holds compiled modules: under a dispatch mode they silently run eager.

    With ``options.allow_decompile`` it writes the event "altered" instead.

    Raises:
        RecordingError: when a module is compiled and ``allow_decompile`` is off.
    """


class OpRecorder(TorchDispatchMode):
    """Records inputs, outputs and arguments of every operator while it is the active dispatch mode."""

    supports_higher_order_operators = True

    def __init__(self, recorder: Recorder, attribution: Attribution, options: RecordOptions) -> None:
        super().__init__()
        self.tracer: Tracer | None = None

    def updating(self, *, active: bool) -> None:
        """Tells that operators now belong to the optimizer (node path ``optimizer/<op>``), or no longer do."""

    def new_step(self) -> None:
        """Forgets call counters and what may be shared; to be called before the recorder ends a step."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs the operator unchanged and records it."""
        raise NotImplementedError
