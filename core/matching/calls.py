"""Align repeated calls as sequences, so that one more call or operator on a side shifts nothing.

A sequence is what happened inside one module in one direction: its operators in order of execution, or the calls of the
module itself. Only sequences whose lengths differ are aligned; equal ones pair call by call.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Above this many cells the exact alignment (quadratic) gives way to difflib's, which ignores content.
_MOST_CELLS = 4_000_000

#: Scores of the alignment. A pair of one kind with near norms beats a pair of one kind whose norms differ, which still
#: beats leaving both out (0): a wrong value must be found as a difference, not vanish as two unmatched rows.
_SAME_CONTENT, _SAME_KIND = 3.0, 1.5

#: Norms that agree to this relative difference count as the same content (bf16 rounding, with room).
_NEAR = 0.02


@dataclass(frozen=True, slots=True)
class Call:
    """One call in a sequence: its kind (operator and shape; only equal kinds pair) and the norm of its result."""

    kind: int
    norm: float


def align(candidate: Sequence[Call], reference: Sequence[Call]) -> list[tuple[int, int]]:
    """Gives index pairs of calls that belong together, in order.

    Global alignment by dynamic programming (Needleman and Wunsch, 1970) over kind and content, between what both
    sequences begin and end with.
    """
    shorter = min(len(candidate), len(reference))
    head = next((i for i in range(shorter) if not _alike(candidate[i], reference[i])), shorter)
    most = shorter - head
    tail = next((i for i in range(most) if not _alike(candidate[-1 - i], reference[-1 - i])), most)
    end_c, end_r = len(candidate) - tail, len(reference) - tail
    middle = _align_middle(candidate[head:end_c], reference[head:end_r])
    return [
        *((i, i) for i in range(head)),
        *((head + i, head + j) for i, j in middle),
        *((end_c + i, end_r + i) for i in range(tail)),
    ]


def _alike(candidate: Call, reference: Call) -> bool:
    """Tells whether two calls could not be paired better."""
    x, y = candidate.norm, reference.norm
    near = abs(x - y) <= _NEAR * max(abs(x), abs(y)) or (x != x and y != y)
    return candidate.kind == reference.kind and near


def _align_middle(candidate: Sequence[Call], reference: Sequence[Call]) -> list[tuple[int, int]]:
    if len(candidate) * len(reference) > _MOST_CELLS:
        return _align_kinds(candidate, reference)
    rows, columns = len(candidate), len(reference)
    kinds_c, kinds_r = _kinds(candidate), _kinds(reference)
    norms_c, norms_r = _norms(candidate)[:, None], _norms(reference)[None, :]
    scale = np.maximum(np.abs(norms_c), np.abs(norms_r))
    near = (np.abs(norms_c - norms_r) <= _NEAR * scale) | (np.isnan(norms_c) & np.isnan(norms_r))
    score = np.where(kinds_c[:, None] == kinds_r[None, :], np.where(near, _SAME_CONTENT, _SAME_KIND), -np.inf)
    best = np.zeros((rows + 1, columns + 1))
    for i in range(1, rows + 1):
        diagonal = best[i - 1, :-1] + score[i - 1]
        row = np.maximum(best[i - 1, 1:], diagonal)
        best[i, 1:] = np.maximum.accumulate(row)  # a gap costs nothing: the row is its running maximum
    return _trace(best, score)


def _trace(best: np.ndarray, score: np.ndarray) -> list[tuple[int, int]]:
    i, j = best.shape[0] - 1, best.shape[1] - 1
    pairs: list[tuple[int, int]] = []
    while i > 0 and j > 0:
        if best[i, j] == best[i - 1, j - 1] + score[i - 1, j - 1]:
            pairs.append((i - 1, j - 1))
            i, j = i - 1, j - 1
        elif best[i, j] == best[i - 1, j]:
            i -= 1
        else:
            j -= 1
    return pairs[::-1]


def _align_kinds(candidate: Sequence[Call], reference: Sequence[Call]) -> list[tuple[int, int]]:
    kinds_c, kinds_r = [call.kind for call in candidate], [call.kind for call in reference]
    blocks = SequenceMatcher(None, kinds_c, kinds_r, autojunk=False).get_matching_blocks()
    return [(block.a + i, block.b + i) for block in blocks for i in range(block.size)]


def _kinds(calls: Sequence[Call]) -> np.ndarray:
    return np.fromiter((call.kind for call in calls), dtype=np.int64, count=len(calls))


def _norms(calls: Sequence[Call]) -> np.ndarray:
    return np.fromiter((call.norm for call in calls), dtype=np.float64, count=len(calls))
