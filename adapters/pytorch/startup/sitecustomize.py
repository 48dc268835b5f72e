"""Python runs this file when it starts, in programs under ``msprobe record``; it waits for the program to import torch.

The folder is put on PYTHONPATH. A ``sitecustomize`` that was there before runs as well.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import os
import sys
from typing import Any

_FOLDER = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - as light as can be: every process runs this


class _WaitForTorch(importlib.abc.MetaPathFinder):
    """Finds nothing itself; has the recording started right after torch has been imported."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_start(module: Any) -> None:
            del loader.exec_module
            execute(module)
            _start()

        loader.exec_module = execute_and_start
        return spec


def _start() -> None:
    try:
        from msprobe.adapters.pytorch.launched import start

        start()
    except Exception as error:  # noqa: BLE001 - law 6: the program runs on without being recorded
        sys.stderr.write(f"msprobe: cannot record this process: {type(error).__name__}: {error}\n")


def _run_shadowed() -> None:
    """Runs the ``sitecustomize`` that this one hides."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _FOLDER]  # noqa: PTH100
    own = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ModuleNotFoundError as error:
        if error.name != "sitecustomize":
            raise
        if own is not None:
            sys.modules["sitecustomize"] = own


if os.environ.get("MSPROBE_LAUNCH"):
    sys.meta_path.insert(0, _WaitForTorch())
_run_shadowed()
