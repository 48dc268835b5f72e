"""Options that belong together, by a name: what to watch while a training runs, what to keep to look at it closely."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: The rules of ``core.alerts`` that are on when nothing else is said.
ALERTS: Final = ("nan", "inf", "departure", "drift", "zero", "ratio", "exploding")

PRESETS: Final[Mapping[str, Mapping[str, Any]]] = {
    # Vital signs of a training: statistics of outputs, gradients, parameters and optimizer, and the alerts.
    "monitor": {
        "what": ("statistics",),
        "inputs": False,
        "parameters": False,
        "buffers": False,
        "trace": False,
        "vectors": False,
        "optimizer_state": True,
        "updated_parameters": True,
        "updates": True,
        "scalars": True,
        "collectives": True,
        "routing": True,
        "attention": True,
        "alerts": ALERTS,
        "control": True,
    },
    # Everything of a few steps: name them with ``steps``.
    "dump": {
        "what": ("statistics", "checksums", "tensors"),
        "optimizer_state": True,
        "updated_parameters": True,
        "scalars": True,
        "collectives": True,
        "stacks": True,
    },
}
