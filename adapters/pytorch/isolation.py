"""Runs the recorder's own operators below everything that watches or changes operators.

Inside ``isolated()`` no gradient is tracked, autocast does not cast, and neither dispatch modes, function modes (such
as ``torch.set_default_device``), function transforms (``torch.func``) nor tensor subclasses see an operator. One
exclusion of dispatch keys does what several context managers would, at a fraction of their cost; it holds for this
thread only.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final

import torch

_C: Any = torch._C

_EXCLUDED_NAMES: Final = (
    "AutogradFunctionality",
    "AutogradOther",
    "AutogradNestedTensor",
    "ADInplaceOrView",
    "Python",
    "PythonTLSSnapshot",
    "PythonDispatcher",
    "PreDispatch",
    *(name for name in dir(_C.DispatchKey) if name.startswith(("Autocast", "Autograd", "FuncTorch"))),
)


def _excluded_keys() -> Any:
    keys = _C.DispatchKeySet(_C.DispatchKey.Python)
    for name in _EXCLUDED_NAMES:
        key = getattr(_C.DispatchKey, name, None)
        if key is not None:
            keys = keys | _C.DispatchKeySet(key)
    return keys


_EXCLUDED: Final = _excluded_keys()


class isolated:  # noqa: N801 - reads as a statement: with isolated(): ...
    """Excludes autograd, autocast, modes and subclasses from the operators of its block."""

    __slots__ = ("_function", "_keys")

    def __enter__(self) -> None:
        self._function = _C.DisableTorchFunction()
        self._function.__enter__()
        self._keys = _C._ExcludeDispatchKeyGuard(_EXCLUDED)
        self._keys.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._keys.__exit__(kind, error, trace)
        self._function.__exit__(kind, error, trace)
