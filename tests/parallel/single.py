"""The reference: the whole model in one process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.parallel.transformer import Config, make_model, train

if TYPE_CHECKING:
    from tests.parallel.launching import Rank


def train_single(rank: Rank, **settings: Any) -> None:
    config = Config(**settings)
    model = make_model(config)
    with rank.record(model) as probe:
        train(model, config, probe)


def train_moe(rank: Rank, **settings: Any) -> None:
    train_single(rank, **{"experts": 4, "layers": 2, **settings})
