"""Seeds torch and asks it for deterministic algorithms."""

from __future__ import annotations

import os
import random
import sys

import torch


def seed_all(seed: int = 1234, *, deterministic: bool = True) -> None:
    """Seeds Python, NumPy where loaded, and torch on all devices; asks torch for deterministic algorithms.

    cuBLAS reads ``CUBLAS_WORKSPACE_CONFIG`` when it starts: call this before the first operator on a device.
    """
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    torch.manual_seed(seed)
    if not deterministic:
        return
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
