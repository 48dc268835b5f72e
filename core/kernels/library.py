"""Finds the compiled library and says which path runs; nothing is ever compiled here.

``MSPROBE_PURE=1`` in the environment makes NumPy do the work although there is a library.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

#: What hatch_build.py puts beside this file.
PATH: Final = Path(__file__).with_name("_kernels.so")

_POINTER, _INT, _LONG, _WORD = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_uint64
#: Functions of source/measure.c, source/pair.c and source/vectors.c and the types of their arguments.
_MEASURE: Final = ("msprobe_measure", (_POINTER, _INT, _INT, _INT, _POINTER, _WORD, _POINTER, _POINTER))
_MEASURE_RUN: Final = ("msprobe_measure_run", (_POINTER, _INT, _INT, _LONG, _WORD, _POINTER, _POINTER))

_MEASURE_RUNS: Final = (
    "msprobe_measure_runs",
    (_POINTER, _INT, _INT, _INT, _POINTER, _POINTER, _LONG, _POINTER, _POINTER),
)
_PAIR: Final = (
    "msprobe_pair",
    (_POINTER, _INT, _POINTER, _INT, _LONG, ctypes.c_double, ctypes.c_double, _LONG, _POINTER, _POINTER),
)
_VECTORS: Final = ("msprobe_vectors", (_POINTER, _INT, _LONG, _LONG, _POINTER, _POINTER))


@dataclass(frozen=True, slots=True)
class Library:
    """The functions of a loaded library.

    A call that takes microseconds keeps the interpreter's lock: a thread that gave it away would wait for it longer
    than that. The ``long_`` ones let other threads run meanwhile.
    """

    measure: Any
    measure_run: Any
    measure_runs: Any
    pair: Any
    vectors: Any
    long_measure: Any
    long_measure_run: Any
    long_measure_runs: Any
    long_pair: Any
    long_vectors: Any
    instructions: Any
    sources: str
    #: Uses the loops of another instruction set, for tests and benchmarks; 0 when there are none of that name.
    choose: Any


def load(path: Path) -> Library:
    """Loads a library; OSError or AttributeError, with the reason, where it is none of ours."""
    short, long = ctypes.PyDLL(str(path)), ctypes.CDLL(str(path))
    short.msprobe_instructions.restype = short.msprobe_sources.restype = ctypes.c_char_p
    short.msprobe_choose.argtypes = (ctypes.c_char_p,)
    of_memory: dict[str, Any] = {
        prefix + name.removeprefix("msprobe_"): _function(library, name, arguments)
        for prefix, library in (("", short), ("long_", long))
        for name, arguments in (_MEASURE, _MEASURE_RUN, _MEASURE_RUNS, _PAIR, _VECTORS)
    }
    return Library(
        **of_memory,
        instructions=short.msprobe_instructions,
        sources=short.msprobe_sources().decode(),
        choose=short.msprobe_choose,
    )


def _function(library: ctypes.CDLL, name: str, arguments: tuple[Any, ...]) -> Any:
    function = getattr(library, name)
    function.argtypes = arguments
    return function


def _load_if_wanted() -> tuple[Library | None, str]:
    if os.environ.get("MSPROBE_PURE") == "1":
        return None, "MSPROBE_PURE=1 asks for it"
    if not PATH.exists():
        return None, "this installation was built without a C compiler"
    try:
        return load(PATH), ""
    except (OSError, AttributeError) as error:
        return None, f"the compiled library does not load: {error}"


class _State:
    """What was found at import, or what ``without`` put in its place."""

    def __init__(self) -> None:
        self.library, self.reason = _load_if_wanted()


_state = _State()


def current() -> Library | None:
    """Gives the library in use."""
    return _state.library


def available() -> bool:
    """Tells whether the C kernels do the work, not NumPy."""
    return _state.library is not None


def status() -> str:
    """Says in one line which path runs, and why if it is not the fast one."""
    if _state.library is None:
        return f"NumPy ({_state.reason})"
    return f"C, {_state.library.instructions().decode()} instructions"


@contextlib.contextmanager
def without() -> Iterator[None]:
    """Makes NumPy do the work inside, in all threads: for comparing the two."""
    library, reason = _state.library, _state.reason
    _state.library, _state.reason = None, "switched off by this program"
    try:
        yield
    finally:
        _state.library, _state.reason = library, reason
