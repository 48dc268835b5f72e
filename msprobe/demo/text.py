"""The text that the demo trains on: source code that every Python has, read byte by byte."""

from __future__ import annotations

import importlib.util
from importlib.abc import InspectLoader

from msprobe.core.errors import MsprobeError

#: Modules of the standard library (PSF licence), about half a megabyte.
SOURCES: tuple[str, ...] = ("argparse", "ast", "dataclasses", "difflib", "inspect", "pathlib", "subprocess", "tarfile")
#: One token for each byte.
VOCABULARY = 256


def read_text() -> bytes:
    """Gives the sources, one after the other.

    Raises:
        MsprobeError: This Python has no sources of its standard library.
    """
    text = "\n".join(filter(None, map(_source, SOURCES)))
    if not text:
        raise MsprobeError(f"this Python has no sources of its standard library (looked for {', '.join(SOURCES)}).")
    return text.encode()


def _source(name: str) -> str:
    spec = importlib.util.find_spec(name)
    loader = spec.loader if spec else None
    if not isinstance(loader, InspectLoader):
        return ""
    try:
        return loader.get_source(name) or ""
    except OSError:
        return ""
