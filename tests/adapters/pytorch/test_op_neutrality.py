"""Recording operators changes no bit, also where torch's own formulas would, and leaves torch as it was."""

from __future__ import annotations

from typing import cast

import pytest
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils._python_dispatch import TorchDispatchMode

import msprobe
from msprobe.core.errors import RecordingError

MASK = torch.tensor([[True, False, True, False]])

FUNCTIONS = {
    "prod of all": lambda x, w: x.prod(),
    "prod of a dimension": lambda x, w: x.prod(-1),
    "prod with a zero": lambda x, w: (x * (x > -0.5)).prod(-1),
    "masked_fill with a tensor": lambda x, w: x.masked_fill(MASK, w[0, 0]),
    "masked_fill_ with a tensor": lambda x, w: x.clone().masked_fill_(MASK, w[0, 0]),
    "masked_fill with a number": lambda x, w: x.masked_fill(MASK, 0.1),
    "cumprod": lambda x, w: x.cumprod(-1),
    "norm": lambda x, w: torch.linalg.norm(x, dim=-1),
    "var": lambda x, w: x.var(-1) + x.std(-1),
    "amax with ties": lambda x, w: x.round().amax(-1),
    "index and scatter": lambda x, w: x[:, [0, 0, 1]].sum() + x.scatter_add(1, torch.zeros(5, 4, dtype=torch.long), x),
    "logsumexp": lambda x, w: torch.logsumexp(x, -1),
    "attention": lambda x, w: F.scaled_dot_product_attention(x[None], (x @ w)[None], x[None], is_causal=True),
    "masked attention": lambda x, w: F.scaled_dot_product_attention(
        x[None], (x @ w)[None], x[None], w[:1, :1] + x @ x.T
    ),
    "einsum": lambda x, w: torch.einsum("ij,jk->ki", x, w),
    "cross entropy": lambda x, w: F.cross_entropy(x, torch.tensor([0, 1, 2, 3, 0]), label_smoothing=0.1),
    "batch norm": lambda x, w: F.batch_norm(x, None, None, training=True),
    "rms norm": lambda x, w: F.rms_norm(x, (4,), w[0]),
    "solve": lambda x, w: torch.linalg.solve(w, x.T) + torch.linalg.det(w),
    "in place": lambda x, w: F.silu(x @ w).mul_(torch.sigmoid(x)).add_(0.5),
    "dropout": lambda x, w: F.dropout(x @ w, 0.3),
}


class Model(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(4, 4, generator=torch.Generator().manual_seed(3)))

    def forward(self, x):
        return self.function(x, self.weight)


def bits(tensor):
    return tensor.detach().contiguous().view(-1).view(torch.int32).tolist()


def run(function, path=None, level="op", **options):
    """Gives the bits of the result and the gradients; with a path they are recorded."""
    model = Model(function)
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    probe = msprobe.record(model, path, level=level, **options) if path else None
    torch.manual_seed(2)
    y = model(x)
    (y * torch.linspace(0.1, 1.3, y.numel()).view(y.shape)).sum().backward()
    if probe:
        probe.step()
        probe.close()
    gradients = [t.grad for t in (x, model.weight) if t.grad is not None]
    return [bits(t) for t in (y, *gradients)]


@pytest.mark.parametrize("level", ["module", "op"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_and_gradients_keep_their_bits(tmp_path, name, level):
    assert run(FUNCTIONS[name], tmp_path / "run", level) == run(FUNCTIONS[name])


def test_a_formula_kept_from_the_mode_is_one_operator_with_its_data_flow(tmp_path, read):
    run(lambda x, w: (x @ w).prod(-1) * 2, tmp_path / "run")
    found = read(tmp_path / "run")
    node = "/autograd.ProdBackward1"
    output = found.at(f"{node}|backward|output|0|0")
    assert found.at(f"{node}|backward|input|gradient.0|0").shape == (5,)
    assert output.shape == (5, 4)
    sites = [found.rank.sites.site(i) for i in range(len(found.rank.sites))]
    edges = {(sites[a].node, sites[b].node) for a, b in found.rank.edges}
    assert (node, "/aten.mm.default") in edges
    assert ("/aten.mul.Tensor", node) in edges


def test_operators_after_a_formula_are_seen_again(tmp_path, read):
    run(lambda x, w: (x @ w).prod(-1) * 2, tmp_path / "run")
    assert any(place.startswith("/aten.mm.default|backward") for place in read(tmp_path / "run").places())


class Counting(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_a_mode_of_the_user_sees_the_same_operators(tmp_path):
    model, x = nn.Linear(4, 4), torch.randn(2, 4)

    def count(path=None):
        with Counting() as mode:
            probe = msprobe.record(model, path, level="op", what="statistics") if path else None
            model(x).sum().backward()
            if probe:
                probe.step()
                probe.close()
        return mode.count

    assert count(tmp_path / "run") == count()


def compiled_linear() -> nn.Module:
    """Gives a model with a compiled part (``torch.compile`` of a module gives a module, but is typed as a function)."""
    model = nn.Sequential(nn.Linear(4, 4))
    model[0] = cast("nn.Module", torch.compile(model[0], backend="eager"))
    return model


@pytest.mark.filterwarnings("ignore")
def test_compiled_modules_are_refused_with_a_way_out(tmp_path):
    model = compiled_linear()
    with pytest.raises(RecordingError, match="allow_decompile"):
        msprobe.record(model, tmp_path / "run", level="op")


@pytest.mark.filterwarnings("ignore")
def test_compiled_modules_are_taken_apart_when_asked_and_the_run_says_so(tmp_path, read):
    model = compiled_linear()
    with msprobe.record(model, tmp_path / "run", level="op", allow_decompile=True):
        model(torch.randn(2, 4))
    found = read(tmp_path / "run")
    assert "altered" in found.kinds()
    assert any(path.endswith("aten.addmm.default") for path in found.nodes)


@pytest.mark.filterwarnings("ignore")
def test_a_function_first_called_while_recording_is_still_compiled(tmp_path):
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    functions = {"f": torch.compile(lambda x: x * 2 + 1, backend=backend)}
    model = Model(lambda x, w: functions["f"](x) @ w)
    with msprobe.record(model, tmp_path / "run", level="op"):
        model(torch.randn(2, 4))
    assert len(compiled) == 1
