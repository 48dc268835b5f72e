"""Runs inside a program under ``msprobe record``: finds its models as they are first called, and records them."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import torch

from msprobe.adapters.pytorch.launch import ACTIVE_VARIABLE, read_instructions
from msprobe.adapters.pytorch.session import Session

if TYPE_CHECKING:
    from pathlib import Path

    from msprobe.core.options import RecordOptions

#: Models are looked for until so many steps have ended; after that a call of a module costs nothing.
STEPS_TO_LOOK = 2


def start() -> None:
    """Starts looking for models, if this process is to be recorded."""
    instructions = read_instructions(os.environ)
    if instructions is not None and ACTIVE_VARIABLE not in os.environ:
        Discovery(*instructions)


class Discovery:
    """Watches which modules are called outermost. The first with parameters is the root ``""``, later ones are named.

    A loss module has no parameters and is none of them.
    """

    def __init__(self, options: RecordOptions, out: Path, perturb: int | None) -> None:
        self._arguments = (options, out, perturb)
        self._session: Session | None = None
        self._known: set[int] = set()
        self._depth = threading.local()
        self._process = os.getpid()
        self._call: Any = torch.nn.Module.__call__
        self._first_step = options.start_step
        self._look()
        self._finish_before_exit()

    def _look(self) -> None:
        original, depth = self._call, self._depth

        def call(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(module, *args, **kwargs)
            level = getattr(depth, "level", 0)
            if not level:
                self._outermost(module)
            depth.level = level + 1
            try:
                return original(module, *args, **kwargs)
            finally:
                depth.level = level

        torch.nn.Module.__call__ = call  # type: ignore[method-assign]
        self._looking = call

    def _stop_looking(self) -> None:
        if torch.nn.Module.__call__ is self._looking:
            torch.nn.Module.__call__ = self._call  # type: ignore[method-assign]

    def _outermost(self, module: torch.nn.Module) -> None:
        if id(module) in self._known or os.getpid() != self._process:
            return
        if torch.utils.data.get_worker_info() is not None:
            return
        if self._session is not None and self._session.recorder.step >= self._first_step + STEPS_TO_LOOK:
            self._stop_looking()
            return
        self._known.update(id(part) for part in module.modules())
        if next(module.parameters(), None) is not None:
            self._watch(module)

    def _watch(self, module: torch.nn.Module) -> None:
        options, out, perturb = self._arguments
        if self._session is None:
            os.environ[ACTIVE_VARIABLE] = str(self._process)
            self._session = Session(module, out, options, perturb=perturb)
        else:
            self._session.add_model(module, self._name(module))

    def _name(self, module: torch.nn.Module) -> str:
        taken = self._session.models if self._session is not None else {}
        name, number = type(module).__name__, 1
        while (unique := name if number == 1 else f"{name}_{number}") in taken:
            number += 1
        return unique

    def _finish_before_exit(self) -> None:
        """Closes the recording before ``os._exit``, which runs no exit handlers."""
        leave = os._exit

        def leave_after_closing(status: int) -> None:
            if self._session is not None and os.getpid() == self._process:
                self._session.close()
            leave(status)

        os._exit = leave_after_closing  # type: ignore[assignment]
