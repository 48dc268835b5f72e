"""Recordings of decoders, each made once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import msprobe
from tests.mapping.twins import FusedDecoder, small_decoder, train

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def record(tmp_path_factory):
    """Gives a function that records a decoder, once for each kind."""
    made: dict[tuple[object, ...], Path] = {}

    def start(kind: str, what: str = "statistics,sketch", family: str = "llama", **options: Any) -> Path:
        key = (kind, what, family, *options.items())
        if key not in made:
            model = small_decoder(family)
            if kind != "parts":
                model = FusedDecoder(model, interleaved=kind == "interleaved")
            made[key] = tmp_path_factory.mktemp(kind) / "run"
            with msprobe.record(model, made[key], what=what, **options):
                train(model, 2)
        return made[key]

    return start
