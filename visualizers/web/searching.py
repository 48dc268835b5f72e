"""Search in all names of one side at once: whole words before parts, parts before scattered letters, short before long.

The names are one text of bytes; what is compared for each hit is an array, so that 100,000 names take a few hundredths
of a second.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from msprobe.visualizers.web.trees import NodeTree

#: What a word of a path may follow.
_EDGES = np.frombuffer(b"._/\t\n", np.uint8)

#: Worth of a hit in parts of the steps between kinds of hits: by the length of the line, and of what letters span.
_BY_LENGTH, _BY_SPAN = 1e-5, 1e-3


@dataclass(frozen=True)
class Haystack:
    """A line of small letters for each node: its path, a tab, its class.

    ``starts`` is where each line begins, ``tabs`` where its path ends; the last entry of ``starts`` is the length.
    """

    text: bytes
    starts: NDArray[np.int64]
    tabs: NDArray[np.int64]

    def scores(self, wanted: str) -> NDArray[np.float64]:
        """Scores each node, the least the best; infinite where it does not fit. Number 0, the top, never fits."""
        word = _plain(wanted)
        scores = self._of_parts(word)
        if len(wanted) > 1 and not np.isfinite(scores).any():
            scores = self._of_letters(word.replace(b" ", b""))
        scores[0] = np.inf
        return scores

    @property
    def _lengths(self) -> NDArray[np.int64]:
        return np.diff(self.starts) - 1

    def _of_parts(self, word: bytes) -> NDArray[np.float64]:
        """Scores the lines that hold the text as it is."""
        scores = np.full(len(self.tabs), np.inf)
        if len(word) == 1:
            found = np.flatnonzero(self._bytes == word[0])
        else:
            found = np.array([hit.start() for hit in re.finditer(re.escape(word), self.text)], np.int64)
        if not len(found):
            return scores
        lines = np.searchsorted(self.starts, found, side="right") - 1
        before = self._bytes[np.maximum(found - 1, 0)]
        edge = (found == self.starts[lines]) | np.isin(before, _EDGES)
        at_end = found + len(word) == self.tabs[lines]
        kind = np.where(at_end, np.where(edge, 0.0, 1.0), np.where(edge, 2.0, 3.0))
        np.minimum.at(scores, lines, kind)
        scores += self._lengths * _BY_LENGTH
        return scores

    def _of_letters(self, letters: bytes) -> NDArray[np.float64]:
        """Scores the lines whose path or class holds the letters in order, with others between."""
        scores = np.full(len(self.tabs), np.inf)
        paths = _Walk(self.starts[:-1], self.tabs)
        classes = _Walk(self.tabs + 1, self.starts[1:] - 1)
        for letter in letters:
            places = np.append(np.flatnonzero(self._bytes == letter), len(self.text))
            paths.step(places)
            classes.step(places)
        for walk in (paths, classes):
            fitting = 4 + walk.span * _BY_SPAN + self._lengths[walk.lines] * _BY_LENGTH
            scores[walk.lines] = np.minimum(scores[walk.lines], fitting)
        return scores

    @property
    def _bytes(self) -> NDArray[np.uint8]:
        return np.frombuffer(self.text, np.uint8)


class _Walk:
    """Goes through a part of each line, to the next place of one letter after the other; drops lines that lack one."""

    def __init__(self, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        self.lines = np.arange(len(begins))
        self._at, self._ends = begins, ends
        self._first: NDArray[np.int64] | None = None

    def step(self, places: NDArray[np.int64]) -> None:
        """Goes on to the next of the places."""
        at = places[np.searchsorted(places, self._at)]
        first = at if self._first is None else self._first
        fits = at < self._ends
        self.lines, self._ends = self.lines[fits], self._ends[fits]
        self._at, self._first = at[fits] + 1, first[fits]

    @property
    def span(self) -> NDArray[np.int64]:
        """How far the letters are apart, the first to the last."""
        return self._at - self._at if self._first is None else self._at - self._first


def haystack(tree: NodeTree) -> Haystack:
    """Gathers the names of a side."""
    paths = [_plain(path) for path in tree.paths]
    classes = [_plain(name) for name in tree.classes]
    lines = [b"%b\t%b\n" % pair for pair in zip(paths, classes, strict=True)]
    starts = np.concatenate([[0], np.cumsum([len(line) for line in lines])]).astype(np.int64)
    return Haystack(b"".join(lines), starts, starts[:-1] + np.array([len(path) for path in paths], np.int64))


def _plain(text: str) -> bytes:
    return text.replace("\n", " ").replace("\t", " ").lower().encode("utf-8", "surrogatepass")
