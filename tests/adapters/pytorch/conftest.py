"""What the tests of the torch adapter share: a run read back as plain rows, and a small transformer."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import nn

import msprobe
from msprobe.core.records import Status


class Row(NamedTuple):
    """One record, with the words that its numbers stand for."""

    place: str
    step: int
    micro_step: int
    dtype: str
    shape: tuple[int, ...]
    status: Status
    values: dict[str, Any]
    read_tensor: Any

    @property
    def tensor(self) -> Any:
        """The saved values."""
        return self.read_tensor()


class ReadRun:
    """A run as rows; ``place`` is ``node|direction|role|argument|call``."""

    def __init__(self, path: Path, rank: int = 0) -> None:
        self.run = msprobe.open_run(path)
        found = self.run.rank(rank)
        self.rank = found
        self.events = list(found.events)
        self.nodes = {node.path: node for node in found.nodes}
        records = found.records
        self.rows = []
        for index in range(len(records["seq"])):
            site = found.sites.site(int(records["site"][index]))
            form = found.forms[int(records["form"][index])]
            self.rows.append(
                Row(
                    f"{site.node}|{site.direction.value}|{site.role.value}|{site.argument}|{site.call}",
                    int(records["step"][index]),
                    int(records["micro_step"][index]),
                    form.dtype,
                    tuple(form.shape),
                    Status(int(records["status"][index])),
                    {name: column[index] for name, column in records.items()},
                    partial(found.tensor, index),
                )
            )

    def places(self, step: int = 0, micro_step: int | None = None) -> list[str]:
        """Gives the places recorded in a step, in order."""
        return [r.place for r in self.rows if r.step == step and micro_step in (None, r.micro_step)]

    def at(self, place: str, step: int = 0, micro_step: int = 0) -> Row:
        """Gives the only record of a place in a micro-step."""
        found = [r for r in self.rows if (r.place, r.step, r.micro_step) == (place, step, micro_step)]
        assert len(found) == 1, f"{len(found)} records of {place}; there are {self.places(step)}"
        return found[0]

    def kinds(self, *but: str) -> list[str]:
        """Gives the kinds of the events."""
        return [event.kind for event in self.events if event.kind not in but]

    def fact(self, node: str, kind: str, name: str) -> list[Any]:
        """Gives the values that a fact had, in order."""
        number = [n.path for n in self.rank.nodes].index(node) if node != "<run>" else -1
        return [f.value for f in self.rank.facts if (f.node, f.kind, f.name) == (number, kind, name)]


@pytest.fixture
def read() -> type[ReadRun]:
    return ReadRun


@pytest.fixture(autouse=True)
def _quiet_torch() -> Iterator[None]:
    threads, deterministic = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
    if torch.are_deterministic_algorithms_enabled() != deterministic:  # setting it imports all of the compiler
        torch.use_deterministic_algorithms(deterministic)


class Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.num_heads = 2

    def forward(self, x: torch.Tensor, *, causal: bool) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.attention = Attention(width)
        self.up, self.act, self.down = nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm(x), causal=True)
        return x + self.down(self.act(self.up(x)))


class Transformer(nn.Module):
    """Two layers, tied embedding, a dict as result."""

    def __init__(self, width: int = 8, words: int = 11) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.layers = nn.ModuleList([Layer(width), Layer(width)])
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor, labels: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        logits = self.head(x)
        if labels is None:
            return {"logits": logits}
        return {"logits": logits, "loss": nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())}


@pytest.fixture
def transformer() -> Transformer:
    return Transformer()
