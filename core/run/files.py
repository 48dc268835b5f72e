"""Two ways to write a file that no crash can leave half done: create it whole, or append and take back."""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path


def create_whole(path: Path, text: str) -> bool:
    """Creates a file with all of its content at once; gives False, and changes nothing, when it is there already.

    Processes that race for one name leave one winner's file, whole.
    """
    aside = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    try:
        aside.write_text(text, encoding="utf-8")
        os.link(aside, path)
    except FileExistsError:
        return False
    except OSError:
        if not aside.exists() or path.exists():
            raise
        aside.replace(path)  # a file system without hard links
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)
    return True


class AppendFile:
    """A new file that only grows. An append that fails takes back what it had written."""

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_BINARY", 0)
        self._descriptor = os.open(path, flags, 0o644)
        self._torn = False
        self.path = path
        self.length = 0

    @property
    def deleted(self) -> bool:
        """Whether the file has lost its name: what is written now, nobody will ever read."""
        return os.fstat(self._descriptor).st_nlink == 0

    def append(self, data: bytes) -> None:
        """Appends in one write.

        Raises:
            OSError: It could not be written; the file is as long as before.
        """
        if self._torn:
            self.cut(self.length)
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            self.cut(self.length)
            raise
        self.length += len(data)

    def cut(self, length: int) -> None:
        """Takes back what was appended after ``length``; nothing is appended before that has worked."""
        self.length = length
        self._torn = True
        os.ftruncate(self._descriptor, length)
        self._torn = False

    def close(self) -> None:
        os.close(self._descriptor)
