"""Where tensors come from: the call stack with its source lines, and the ranks that a merged one was made of."""

from __future__ import annotations

import linecache
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.visualizers.wording import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from msprobe.core.verdicts.pair_records import Origin, PairRecords

_FRAME = re.compile(r"^(?P<file>.*):(?P<line>\d+) (?P<function>[^:]*)$", re.DOTALL)

#: How many different ways of merging a panel tells.
_MOST_ORIGINS = 12

#: Larger files are no source that a person wrote.
_LARGEST_FILE = 5_000_000

#: Longer lines of source are cut.
_LONGEST_LINE = 400


def stacks(records: PairRecords | None, rows: Iterable[int]) -> list[dict[str, Any]] | None:
    """Gives for each side the first stack that any of the rows has, with source lines; None where runs are not open."""
    if records is None:
        return None
    numbers = list(rows)
    found = []
    for side in (0, 1):
        stack = next((stack for row in numbers if (stack := records.stack(side, row))), ())
        found.append({"side": "cr"[side], "frames": [_frame(text) for text in stack]})
    return found


def _frame(text: str) -> dict[str, Any]:
    parts = _FRAME.fullmatch(text)
    if parts is None:
        return {"file": printable(text), "line": 0, "function": "", "source": ""}
    line = int(parts["line"])
    return {
        "file": printable(parts["file"]),
        "line": line,
        "function": printable(parts["function"]),
        "source": printable(source_line(parts["file"], line)),
    }


def source_line(file: str, line: int) -> str:
    """Gives a line of a Python file that is on this machine, as it is now; "" where it is not.

    Other files are never opened: a run may name any.
    """
    path = Path(file)
    try:
        if path.suffix != ".py" or not path.is_absolute() or not path.is_file() or path.stat().st_size > _LARGEST_FILE:
            return ""
    except (OSError, ValueError):
        return ""
    linecache.checkcache(file)
    return linecache.getline(file, line).strip()[:_LONGEST_LINE]


def origins(records: PairRecords | None, rows: Iterable[int]) -> list[dict[str, Any]]:
    """Says how the merged records of the rows were made, each way once with the first rows that it holds for."""
    if records is None:
        return []
    told: dict[tuple[str, str, tuple[int, ...]], dict[str, Any]] = {}
    for row in rows:
        for side in (0, 1):
            origin = records.origin(side, row)
            if origin is not None:
                words = origin.provenance.words()
                told.setdefault(("cr"[side], words, origin.odd), _origin("cr"[side], words, origin))["rows"].append(row)
                if len(told) >= _MOST_ORIGINS:
                    return list(told.values())
    return list(told.values())


def _origin(side: str, words: str, origin: Origin) -> dict[str, Any]:
    parts = [
        {
            "rank": part.rank,
            "place": printable(origin.places[part.rank]),
            "use": part.use,
            "odd": part.rank in origin.odd,
            "shape": list(part.form.shape),
        }
        for part in origin.provenance.parts
    ]
    return {"side": side, "words": printable(words), "parts": parts, "odd": list(origin.odd), "rows": []}
