"""Operators: none is missed, each is attributed to its module, and what cannot be measured says so."""

from __future__ import annotations

import sys

import pytest
import torch
from torch import nn, relu
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

import msprobe
from msprobe.core.records import Status


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


@torch.library.custom_op("msprobe_tests::shift", mutates_args=())
def shift(x: torch.Tensor, by: float) -> torch.Tensor:
    return x + by


class Model(nn.Module):
    """Runs a function with one parameter."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.weight = nn.Parameter(torch.randn(4, 4))

    def forward(self, *args):
        return self.function(self.weight, *args)


@pytest.fixture
def run_ops(tmp_path, read):
    """Records a function as a model's forward, with backward where it has one."""

    def run(function, *args, backward=False, model=None, **options):
        model = model or Model(function)
        with msprobe.record(model, tmp_path / "run", **{"level": "op", "what": "statistics", **options}) as probe:
            result = model(*args)
            if backward:
                result.sum().backward()
            probe.step()
        return read(tmp_path / "run")

    return run


def ops(run, prefix=""):
    return [path.removeprefix(f"{prefix}/") for path in run.nodes if path.startswith(f"{prefix}/")]


X = torch.arange(16.0).view(4, 4)
Q = torch.arange(128.0).view(1, 2, 4, 16) / 128

SEEN = {
    "indexing": (lambda w, x: x[torch.tensor([0, 1])], X, "aten.index.Tensor", "torch.Tensor.__getitem__"),
    "slice": (lambda w, x: x[:, 1:], X, "aten.slice.Tensor", "torch.Tensor.__getitem__"),
    "view": (lambda w, x: x.view(2, 8), X, "aten.view.default", "torch.Tensor.view"),
    "operator": (lambda w, x: x @ w, X, "aten.mm.default", "torch.Tensor.__matmul__"),
    "bare name": (lambda w, x: relu(x), X, "aten.relu.default", "torch.relu"),
    "functional": (lambda w, x: F.silu(x), X, "aten.silu.default", "torch.nn.functional.silu"),
    "method": (lambda w, x: x.tanh(), X, "aten.tanh.default", "torch.Tensor.tanh"),
    "torch.ops": (lambda w, x: torch.ops.aten.sin(x), X, "aten.sin.default", "torch.ops.aten.sin"),
    "custom": (lambda w, x: shift(x, 1.0), X, "msprobe_tests.shift.default", None),
    "function": (lambda w, x: Twice.apply(x), X, "aten.mul.Tensor", "torch.Tensor.__mul__"),
    "rms_norm": (lambda w, x: F.rms_norm(x, (4,)), X, "aten.rsqrt.default", "torch.nn.functional.rms_norm"),
    "foreach": (lambda w, x: torch._foreach_mul([x], 2.0)[0], X, "aten._foreach_mul.Scalar", "torch._foreach_mul"),
    "random": (lambda w, x: torch.rand(4), X, "aten.rand.default", "torch.rand"),
    "in place": (lambda w, x: x.clone().add_(1), X, "aten.add_.Tensor", "torch.Tensor.add_"),
    "augmented": (lambda w, x: _augmented(x), X, "aten.mul_.Tensor", "torch.Tensor.__imul__"),
    "out": (lambda w, x: torch.mm(x, x, out=torch.zeros(4, 4)), X, "aten.mm.out", "torch.mm"),
}


def _augmented(x):
    y = x.clone()
    y *= 2
    return y


@pytest.mark.parametrize("name", SEEN)
def test_every_kind_of_operator_is_seen_with_its_python_api(run_ops, name):
    function, x, op, api = SEEN[name]
    run = run_ops(function, x)
    assert op in ops(run)
    if api is not None and sys.version_info >= (3, 11):
        assert run.nodes[f"/{op}"].api == api
    assert run.kinds() == []


def test_fused_attention_is_one_operator(run_ops):
    run = run_ops(lambda w, q: F.scaled_dot_product_attention(q, q, q), Q)
    assert any("scaled_dot_product" in op for op in ops(run))


@pytest.mark.parametrize("kind", ["cond", "while_loop", "flex_attention"])
@pytest.mark.filterwarnings("ignore")
def test_higher_order_operators_are_one_operator(run_ops, kind):
    def cond(w, x):
        return torch.cond(x.sum() > 0, lambda x: x @ x, lambda x: x - 1, (x,))

    def while_loop(w, x):
        from torch._higher_order_ops.while_loop import while_loop

        return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.tensor(0), x))

    def flex_attention(w, q):
        from torch.nn.attention.flex_attention import flex_attention

        return flex_attention(q, q, q)

    function = {"cond": cond, "while_loop": while_loop, "flex_attention": flex_attention}[kind]
    x = Q if kind == "flex_attention" else X
    expected = Model(function)(x)
    run = run_ops(function, x)
    assert kind in ops(run)
    output = run.at(f"/{kind}|forward|output|{1 if kind == 'while_loop' else 0}|0")
    last = expected[1] if isinstance(expected, tuple) else expected
    assert output.values["max"] == pytest.approx(last.max().item(), rel=1e-6)


def test_sites_count_calls_and_name_arguments_as_the_schema_does(run_ops):
    run = run_ops(lambda w, x: (x @ w) @ w, X)
    product = "/aten.mm.default|forward"
    assert [p for p in run.places() if p.startswith(product)] == [
        f"{product}|{part}|{call}" for call in (0, 1) for part in ("input|self", "input|mat2", "output|0")
    ]


def test_arguments_that_are_no_tensors_are_facts(run_ops):
    run = run_ops(lambda w, x: x.sum(1, keepdim=True) + torch.zeros(1, dtype=torch.float64), X)
    assert run.fact("/aten.sum.dim_IntList", "argument", "forward[0].dim") == [[1]]
    assert run.fact("/aten.sum.dim_IntList", "argument", "forward[0].keepdim") == [True]
    assert run.fact("/aten.zeros.default", "argument", "forward[0].dtype") == ["torch.float64"]


def test_operands_that_are_written_are_recorded_before(run_ops):
    run = run_ops(lambda w, x: x.clone().fill_(7.0), X)
    assert run.at("/aten.fill_.Scalar|forward|input|self|0").values["max"] == 15
    assert run.at("/aten.fill_.Scalar|forward|output|0|0").values["max"] == 7


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        return self.two(self.one(x)) + self.one(x).sigmoid()


def test_backward_operators_belong_to_the_module_of_their_forward(run_ops):
    run = run_ops(None, X, model=Shared(), backward=True)
    backward = {place.split("|")[0] for place in run.places() if "|backward|" in place}
    assert {"two.1/aten.threshold_backward.default", "/aten.sigmoid_backward.default"} <= backward
    assert {"one/aten.mm.default", "two.0/aten.mm.default", "one/aten.sum.dim_IntList"} <= backward
    assert "outside/aten.sum.default|forward|input|self|0" in run.places()
    assert not any(path.startswith("outside/") for path in backward - {"outside/aten.expand.default"})


def test_accumulation_of_a_gradient_belongs_to_the_parameters_module(run_ops):
    model = Shared()
    model(X).sum().backward()
    run = run_ops(None, X, model=model, backward=True)
    assert "two.0/aten.add_.Tensor|backward|input|self|0" in run.places()


def test_optimizer_operators_have_a_place_of_their_own(tmp_path, read):
    model = Shared()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=True)
    with msprobe.record(model, tmp_path / "run", level="op", what="statistics", optimizer=optimizer):
        model(X).sum().backward()
        optimizer.step()
    run = read(tmp_path / "run")
    assert "aten._foreach_add_.List" in ops(run, "optimizer")
    assert "optimizer/aten._foreach_add_.List|update|output|self.0|0" in run.places()


@pytest.mark.parametrize("reentrant", [True, False])
def test_recomputed_operators_are_marked(run_ops, reentrant):
    def function(w, x):
        return checkpoint(lambda y: (y @ w).sin().cos(), x.clone().requires_grad_(), use_reentrant=reentrant)

    run = run_ops(function, X, backward=True)
    again = [p for p in run.places() if "|recompute|" in p]
    assert "/aten.sin.default|recompute|input|self|0" in again
    assert "/aten.sin.default|forward|input|self|0" in run.places()
    assert any(p.startswith("/aten.mm.default|backward|") for p in run.places())
    assert not any("backward" in p.split("|")[0] for p in again)


def test_content_is_measured_once(run_ops):
    run = run_ops(lambda w, x: (x * 2).view(16).view(2, 8) + 1, X, what="tensors")
    product = run.at("/aten.mul.Tensor|forward|output|0|0")
    assert run.at("/aten.view.default|forward|input|self|0").values["tensor"] == product.values["seq"]
    last = run.at("/aten.add.Tensor|forward|input|self|0")
    assert last.shape == (2, 8)
    assert last.tensor.shape == (2, 8)
    assert last.values["tensor"] == product.values["seq"]


def test_modules_and_operators_share_what_they_see(run_ops):
    run = run_ops(None, X, model=nn.Sequential(nn.Linear(4, 4), nn.ReLU()), what="tensors", level="mix")
    product = run.at("0/aten.addmm.default|forward|output|0|0").values["seq"]
    assert [run.at(f"{place}|0|0").values["tensor"] for place in ("0|forward|output", "1|forward|input")] == [
        product
    ] * 2


def test_statistics_are_shared_between_shapes_of_the_same_elements(run_ops):
    run = run_ops(lambda w, x: (x * 2).view(2, 8).t() + 1, X)
    view = run.at("/aten.view.default|forward|output|0|0")
    assert (view.shape, view.values["max"]) == ((2, 8), 30)
    assert run.at("/aten.t.default|forward|output|0|0").shape == (8, 2)


def test_a_changed_tensor_is_measured_again_though_inference_mode_counts_no_versions(tmp_path, read):
    model = Model(lambda w, x: (lambda y: (y + 1, y.mul_(3), y + 1))(x * 2))
    with msprobe.record(model, tmp_path / "run", level="op", what="statistics"), torch.inference_mode():
        model(X)
    run = read(tmp_path / "run")
    assert run.at("/aten.add.Tensor|forward|input|self|0").values["max"] == 30
    assert run.at("/aten.add.Tensor|forward|input|self|1").values["max"] == 90


def test_memory_that_nobody_wrote_is_uninitialised(run_ops):
    torch.use_deterministic_algorithms(True)

    def function(w, x):
        y = torch.empty(4)
        y[:2] = 1.0
        z = y + 0
        y[2:] = 2.0
        return z, y * 1

    run = run_ops(function, X)
    assert run.at("/aten.empty.memory_format|forward|output|0|0").status is Status.UNINITIALISED
    assert run.at("/aten.add.Tensor|forward|input|self|0").status is Status.UNINITIALISED
    assert run.at("/aten.mul.Tensor|forward|input|self|0").status is Status.MEASURED


def test_an_exception_in_an_operator_passes_and_is_noted(tmp_path, read):
    model = Model(lambda w, x: x @ torch.zeros(3, 3))
    with (
        msprobe.record(model, tmp_path / "run", level="op"),
        pytest.raises(RuntimeError, match="cannot be multiplied"),
    ):
        model(X)
    events = [e for e in read(tmp_path / "run").events if e.kind == "error"]
    assert [(e.node, "RuntimeError" in e.message) for e in events] == [("/aten.mm.default", True)]


def test_targets_choose_operators(run_ops):
    run = run_ops(lambda w, x: (x @ w).relu().sin(), X, targets=("aten.sin*", "*/aten.relu.default"))
    assert {p.split("|")[0] for p in run.places()} == {"/aten.sin.default", "/aten.relu.default"}


def test_stacks_lead_to_the_line_that_called(run_ops):
    run = run_ops(lambda w, x: x.sin(), X, stacks=True)
    index = int(run.at("/aten.sin.default|forward|output|0|0").values["site"])
    stack = run.rank.stacks[int(run.rank.sites.stack[index])]
    assert any("test_ops.py" in frame for frame in stack)
    assert not any("dispatch.py" in frame for frame in stack)


def test_transforms_run_as_they_are(run_ops):
    expected = torch.vmap(torch.sin)(X)
    run = run_ops(lambda w, x: torch.vmap(torch.sin)(x) + torch.func.grad(lambda y: (y * y).sum())(x) * 0, X)
    assert run.at("/aten.sin.default|forward|output|0|0").values["max"] == pytest.approx(expected.max().item())


def test_sparse_and_nested_operands_do_not_disturb(run_ops):
    def function(w, x):
        nested = torch.nested.nested_tensor([x, x[:1]], layout=torch.jagged) * 2
        return torch.sparse.mm(x.to_sparse(), x), nested

    run = run_ops(function, X)
    assert "error" not in run.kinds()
    assert "aten._sparse_addmm.default" in ops(run)
