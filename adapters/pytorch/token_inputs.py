"""Which inputs of a model tell where its tokens stand: they are saved in full, to align padded and packed batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msprobe.core.matching.tokens import TOKEN_INPUTS

if TYPE_CHECKING:
    import torch

#: Larger ones are not saved: masks of every pair of tokens, which say nothing of padding that a smaller one would not.
_MOST_BYTES = 2**20


def tells_tokens(path: str, tensor: torch.Tensor) -> bool:
    """Tells whether an argument of the model is a small mask, table of positions or of lengths."""
    if path.rpartition(".")[2] not in TOKEN_INPUTS:
        return False
    return tensor.dim() <= 2 and not tensor.is_floating_point() and tensor.nbytes <= _MOST_BYTES
