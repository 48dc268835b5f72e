"""Keep torch's compiler away from our dispatch modes without importing it.

Torch wraps ``__torch_dispatch__`` of every mode so that the compiler leaves it alone, and the wrapper imports the
compiler at the first operator: seconds of a user's first step, in a program that compiles nothing. Marking the code
object does the same for nothing.
"""

from __future__ import annotations

from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

try:
    from torch._C._dynamo.eval_frame import (
        _FrameAction,
        _FrameExecStrategy,
        set_code_exec_strategy,
    )

    _CAN_MARK = True
except ImportError:  # an older torch, whose wrapper stays where it has one
    _CAN_MARK = False


class UncompiledMode(TorchDispatchMode):
    """A dispatch mode whose own code, and all that it calls, the compiler skips."""

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)  # type: ignore[no-untyped-call]
        dispatch = cls.__dict__.get("__torch_dispatch__")
        if _CAN_MARK and dispatch is not None:
            set_code_exec_strategy(dispatch.__code__, _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Tells torch whether to wrap subclasses in its own guard."""
        return not _CAN_MARK
