"""Data flow between sites, checked edge by edge on models small enough to do by hand."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import msprobe
from msprobe.adapters.pytorch.storages import Storages, elements_of, stretch_of


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x):
        weights = (self.q(x) @ self.k(x).transpose(-1, -2)).softmax(-1)
        return self.o(weights @ self.v(x))


class Block(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.norm, self.attn = nn.LayerNorm(width, bias=False), Attention(width)

    def forward(self, x):
        return x + self.attn(self.norm(x))


SHORT = {"forward": "", "backward": "d ", "update": "update ", "recompute": "again "}


def sources(path):
    """Gives the sources of each site of a run; a site is named ``direction node.role.argument[call]``."""
    rank = msprobe.open_run(path).rank(0)

    def name(index):
        site = rank.sites.site(index)
        call = f"[{site.call}]" if site.call else ""
        return f"{SHORT[site.direction.value]}{site.node or 'root'}.{site.role.value}.{site.argument}{call}"

    found: dict[str, set[str]] = {}
    for source, target in rank.edges:
        found.setdefault(name(target), set()).add(name(source))
    return found


def record(path, model, step, level="module", **options):
    with msprobe.record(model, path, level=level, what="statistics", **options) as probe:
        step()
        probe.step()
    return sources(path)


FORWARD = {
    "norm.input.0": {"root.input.0"},
    "norm.output.0": {"norm.input.0", "norm.parameter.weight"},
    "attn.input.0": {"norm.output.0"},
    **{f"attn.{m}.input.0": {"norm.output.0"} for m in "qkv"},
    **{f"attn.{m}.output.0": {f"attn.{m}.input.0", f"attn.{m}.parameter.weight"} for m in "qkvo"},
    "attn.o.input.0": {"attn.q.output.0", "attn.k.output.0", "attn.v.output.0"},
    "attn.output.0": {"attn.o.output.0"},
    "root.output.0": {"root.input.0", "attn.output.0"},
}
BACKWARD = {
    "d root.input.0": {"root.output.0"},
    "d attn.o.input.0": {"d root.input.0"},
    "d attn.input.0": {"d attn.o.input.0"},
    "d attn.o.output.0": {"d attn.input.0", "attn.o.parameter.weight"},
    "d attn.v.input.0": {"d attn.o.output.0", "attn.q.output.0", "attn.k.output.0"},
    "d attn.q.input.0": {"d attn.o.output.0", "attn.q.output.0", "attn.k.output.0", "attn.v.output.0"},
    "d attn.k.input.0": {"d attn.o.output.0", "attn.q.output.0", "attn.k.output.0", "attn.v.output.0"},
    "d norm.input.0": {f"d attn.{m}.input.0" for m in "qkv"} | {f"attn.{m}.parameter.weight" for m in "qkv"},
    "d attn.o.gradient.weight": {"d attn.input.0", "attn.q.output.0", "attn.k.output.0", "attn.v.output.0"},
    **{f"d attn.{m}.gradient.weight": {f"d attn.{m}.input.0", "norm.output.0"} for m in "qkv"},
    "d norm.gradient.weight": {"d norm.input.0", "root.input.0", "norm.parameter.weight"},
}
UPDATE = {
    f"update {m}.gradient.weight": {f"d {m}.gradient.weight"} for m in ("norm", "attn.q", "attn.k", "attn.v", "attn.o")
}


def test_every_edge_of_a_training_step_is_found(tmp_path):
    model, x = Block(), torch.randn(2, 3, 4)
    found = record(tmp_path / "run", model, lambda: (model(x) ** 2).sum().backward())
    assert found == {**FORWARD, **BACKWARD, **UPDATE}


@pytest.mark.parametrize("context", [torch.inference_mode, torch.no_grad])
def test_every_edge_of_an_inference_step_is_found(tmp_path, context):
    model, x = Block(), torch.randn(2, 3, 4)

    def step():
        with context():
            model(x)

    assert record(tmp_path / "run", model, step) == FORWARD


def test_mix_puts_operators_between_the_sites_of_modules(tmp_path):
    model, x = Block(), torch.randn(2, 3, 4)
    found = record(tmp_path / "run", model, lambda: model(x), level="mix")
    product = "attn.q/aten.mm.default"
    assert found[f"{product}.input.self"] == {"norm.output.0"}  # the view between keeps the elements
    assert found[f"{product}.input.mat2"] == {"attn.q/aten.t.default.output.0"}
    assert found[f"{product}.output.0"] == {f"{product}.input.self", f"{product}.input.mat2"}
    assert found["attn.q.output.0"] == {f"{product}.output.0"}
    assert found["/aten.add.Tensor.input.self"] == {"root.input.0"}
    assert found["root.output.0"] == {"/aten.add.Tensor.output.0"}


class Container(nn.Module):
    """Runs a function over its children."""

    def __init__(self, function, **children):
        super().__init__()
        self.function = function
        for name, child in children.items():
            self.add_module(name, child)

    def forward(self, x):
        return self.function(self, x)


def test_parts_of_one_storage_keep_their_own_sources(tmp_path):
    split = Container(lambda m, x: (x * 2).chunk(2, -1))
    model = Container(lambda m, x: m.right(m.split(x)[1]), split=split, right=nn.Identity())
    found = record(tmp_path / "run", model, lambda: model(torch.randn(2, 4)))
    assert found["right.input.0"] == {"split.output.1"}


def test_writing_in_place_adds_a_source(tmp_path):
    model = Container(lambda m, x: m.c(m.a(x).add_(m.b(x))), a=nn.Linear(4, 4), b=nn.Linear(4, 4), c=nn.Identity())
    found = record(tmp_path / "run", model, lambda: model(torch.randn(2, 4)))
    assert found["c.input.0"] == {"a.output.0", "b.output.0"}


def test_writing_one_row_adds_a_source(tmp_path):
    def function(m, x):
        y = torch.zeros(2, 4)
        y[0] = m.a(x)[0]
        return m.c(y)

    model = Container(function, a=nn.Linear(4, 4), c=nn.Identity())
    found = record(tmp_path / "run", model, lambda: model(torch.randn(2, 4)))
    assert found["c.input.0"] == {"a.output.0"}


def test_overwriting_drops_the_old_sources(tmp_path):
    model = Container(lambda m, x: m.c(m.a(x).copy_(m.b(x))), a=nn.Linear(4, 4), b=nn.Linear(4, 4), c=nn.Identity())
    found = record(tmp_path / "run", model, lambda: model(torch.randn(2, 4)))
    assert found["c.input.0"] == {"b.output.0"}


def test_constants_have_no_sources(tmp_path):
    model = Container(lambda m, x: m.c(torch.zeros_like(m.a(x))), a=nn.Linear(4, 4), c=nn.Identity())
    found = record(tmp_path / "run", model, lambda: model(torch.randn(2, 4)))
    assert "c.input.0" not in found


def test_a_tensor_that_comes_in_by_a_side_door_keeps_its_true_source(tmp_path):
    inner = Container(lambda m, x: x + m.extra)
    inner.register_buffer("unused", torch.ones(1))

    def function(m, x):
        inner.extra = m.a(x)
        return m.inner(m.b(x))

    model = Container(function, a=nn.Linear(4, 4), b=nn.Linear(4, 4), inner=inner)
    found = record(tmp_path / "run", model, lambda: model(torch.randn(2, 4)))
    assert found["inner.output.0"] == {"inner.input.0", "a.output.0"}


def test_edges_hold_within_one_micro_step_and_updates_join_them(tmp_path):
    model, x = nn.Sequential(nn.Linear(4, 4, bias=False)), torch.randn(2, 4)
    carried: list[torch.Tensor] = []

    def step():
        for _ in range(2):
            y = model(x + carried[-1].detach() if carried else x)
            carried.append(y)
            y.sum().backward()

    found = record(tmp_path / "run", model, step)
    assert found["0.output.0"] == {"0.input.0", "0.parameter.weight"}
    assert "root.output.0" not in found.get("root.input.0", set())
    assert found["update 0.gradient.weight"] == {"d 0.gradient.weight"}


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputation_comes_from_what_the_forward_kept(tmp_path, reentrant):
    inner = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model = Container(
        lambda m, x: checkpoint(m.inner, m.first(x), use_reentrant=reentrant), first=nn.Linear(4, 4), inner=inner
    )
    found = record(tmp_path / "run", model, lambda: model(torch.randn(2, 4)).sum().backward())
    assert found["inner.input.0"] == {"first.output.0"}
    assert found["again inner.input.0"] == {"first.output.0"}
    assert found["again inner.0.output.0"] == {
        "again inner.0.input.0",
        "inner.0.parameter.weight",
        "inner.0.parameter.bias",
    }
    before = found["d inner.output.0"] if reentrant else found["d first.input.0"]
    assert before >= {"inner.0.parameter.weight"}


def test_more_sources_than_are_kept_are_a_gap(tmp_path):
    heads = {f"h{i}": nn.Linear(2, 2) for i in range(70)}
    model = Container(lambda m, x: m.last(sum(m.get_submodule(name)(x) for name in heads)), **heads, last=nn.Identity())
    found = record(tmp_path / "run", model, lambda: model(torch.randn(1, 2)))
    assert len(found["last.input.0"]) == 64
    assert "h69.output.0" in found["last.input.0"]
    assert any("64 sources" in event.message for event in msprobe.open_run(tmp_path / "run").rank(0).events)


def test_unusual_tensors_are_followed_or_left_alone(tmp_path):
    def function(m, x):
        sparse = torch.sparse.mm(m.a(x).detach().to_sparse(), torch.eye(4))
        torch.empty(2, 2, device="meta") + 1
        nested = torch.nested.nested_tensor([x, x[:1]], layout=torch.jagged) * 2
        return m.c(sparse + nested.values()[:2] + torch.vmap(torch.sin)(x))

    model = Container(function, a=nn.Linear(4, 4), c=nn.Identity())
    found = record(tmp_path / "run", model, lambda: model(torch.randn(2, 4)))
    assert found["c.input.0"] == {"a.output.0", "root.input.0"}
    assert "error" not in {event.kind for event in msprobe.open_run(tmp_path / "run").rank(0).events}


def test_a_new_storage_is_never_taken_for_one_that_is_gone():
    storages = Storages()
    for _ in range(2000):
        storage = storages.of(torch.empty(8))
        assert storage.sources is None
        storage.sources = frozenset({1})


def test_storages_that_are_gone_are_swept():
    storages = Storages()
    for _ in range(20_000):
        storages.of(torch.empty(1))
    gc.collect()
    assert len(storages) <= 8192


@pytest.mark.parametrize("view", ["view(6)", "unsqueeze(0)", "view(3, 2)", "detach()", "flatten()"])
def test_views_of_the_same_elements_in_the_same_order_are_one_stretch(view):
    x = torch.arange(6.0).view(2, 3)
    assert stretch_of(eval(f"x.{view}", {"x": x})) == stretch_of(x)


@pytest.mark.parametrize("view", ["t()", "x[:, :2]", "x[1:]", "expand(4, 2, 3)", "t().contiguous().t()"])
def test_other_views_are_other_stretches(view):
    x = torch.arange(6.0).view(2, 3)
    assert stretch_of(eval(view if view.startswith("x") else f"x.{view}", {"x": x})) != stretch_of(x)


def test_the_table_of_storages_keeps_no_memory_alive():
    storages, memory = Storages(), np.zeros(1000, np.float32)
    freed = weakref.ref(memory)
    storages.of(torch.from_numpy(memory))
    del memory
    gc.collect()
    assert freed() is None


@pytest.mark.parametrize("view", ["x.t()", "x.permute(1, 0).unsqueeze(0)", "x[:, :2].t()"])
def test_permuted_views_hold_the_same_elements(view):
    x = torch.arange(6.0).view(2, 3)
    base = x[:, :2] if "[" in view else x
    assert elements_of(eval(view, {"x": x})) == elements_of(base)
    assert stretch_of(eval(view, {"x": x})) != stretch_of(base)
