"""The front door of msprobe: record a run, compare two runs, open a run, merge its ranks.

Names are imported when they are first used, so that ``import msprobe`` costs a training process next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from msprobe.comparing import compare, merge
    from msprobe.core.errors import MsprobeError
    from msprobe.core.options import RecordOptions
    from msprobe.core.run.reader import open_run
    from msprobe.recording import monitor, record, save, seed_all

__version__ = "0.1.0"

__all__ = [
    "MsprobeError",
    "RecordOptions",
    "__version__",
    "compare",
    "merge",
    "monitor",
    "open_run",
    "record",
    "save",
    "seed_all",
]

_HOMES = {
    "MsprobeError": "msprobe.core.errors",
    "RecordOptions": "msprobe.core.options",
    "compare": "msprobe.comparing",
    "merge": "msprobe.comparing",
    "monitor": "msprobe.recording",
    "open_run": "msprobe.core.run.reader",
    "record": "msprobe.recording",
    "save": "msprobe.recording",
    "seed_all": "msprobe.recording",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'msprobe' has no attribute {name!r}. It has: {', '.join(__all__)}.")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
