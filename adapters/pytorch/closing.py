"""Has a recording closed when Python exits."""

from __future__ import annotations

import atexit
import weakref
from collections.abc import Callable
from typing import Protocol


class Closable(Protocol):
    """Has something to finish."""

    def close(self) -> None: ...


def close_at_exit(session: Closable) -> Callable[[], None]:
    """Registers the closing of a session, which is not kept alive by it, and gives what to unregister.

    Handlers run last first: a session must be closed before its writer is, so it is registered after it.
    """
    reference = weakref.ref(session)

    def close() -> None:
        alive = reference()
        if alive is not None:
            alive.close()

    return atexit.register(close)
