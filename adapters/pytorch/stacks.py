"""The Python call stack of a site, from the outermost frame of the user's program inward."""

from __future__ import annotations

import sys
from pathlib import Path

import torch

_TORCH = str(Path(torch.__file__).parent)
_OWN = str(Path(__file__).parent)
_MAX_FRAMES = 48


def python_stack() -> tuple[str, ...]:
    """Gives ``file:line function`` of each frame outside of torch and of the recorder."""
    lines: list[str] = []
    frame = sys._getframe(1)
    while frame is not None and len(lines) < _MAX_FRAMES:
        name = frame.f_code.co_filename
        if not name.startswith((_TORCH, _OWN)):
            lines.append(f"{name}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(reversed(lines))
