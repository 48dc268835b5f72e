"""The adapter for torch: watches modules and operators, in training and in inference.

Torch is imported when a recording starts: running a program under ``msprobe record`` needs none in this process.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from msprobe.adapters.pytorch.session import Session
    from msprobe.core.options import RecordOptions

__all__ = ["PyTorchAdapter"]


class PyTorchAdapter:
    """Records models of torch."""

    name = "pytorch"

    def owns(self, model: object) -> bool:
        """Tells whether the model is a torch module, a stage of a pipeline, or a list of these."""
        if "torch" not in sys.modules:
            return False
        from msprobe.adapters.pytorch.parallel.pipeline import are_models

        return are_models(model)

    def record(
        self, model: Any, path: Path, options: RecordOptions, *, optimizer: Any = None, **context: object
    ) -> Session:
        """Starts recording the model, or the models of a mapping by name, into a run directory."""
        from msprobe.adapters.pytorch.session import Session

        return Session(model, path, options, optimizer=optimizer, context=context)

    def save(self, tensor: Any, name: str) -> None:
        """Records a tensor under a name in every recording under way."""
        from msprobe.adapters.pytorch.saving import save

        save(tensor, name)

    def seed_all(self, seed: int, *, deterministic: bool = True) -> None:
        """Seeds torch and asks it for deterministic algorithms."""
        from msprobe.adapters.pytorch.determinism import seed_all

        seed_all(seed, deterministic=deterministic)
