"""What is said of each kind of tensor, and whether its values can be had."""

import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from msprobe.adapters.pytorch.forms import describe, values_of
from msprobe.adapters.pytorch.reductions import TorchReducer
from msprobe.core.placement import Layout, Placement, read_layout
from msprobe.core.sites import Form

EVERYTHING = frozenset({"statistics", "sketch", "checksums"})


def nested(layout):
    return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=layout)


def fake():
    with FakeTensorMode():
        return torch.ones(2, 3)


def quantized():
    return torch.quantize_per_tensor(torch.ones(2, 3), 0.1, 0, torch.qint8)


def packed():
    return torch.zeros(2, 3, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)


def freed():
    tensor = torch.ones(4, 3)[1:3]
    tensor.untyped_storage().resize_(0)
    return tensor


class Logged(torch.Tensor):
    """A subclass whose operators are its own affair."""

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[override]
        raise AssertionError("nobody may call an operator on this")


class Plain(torch.Tensor):
    """A subclass that only adds methods."""


KINDS = {
    "dense": lambda: torch.ones(2, 3),
    "meta": lambda: torch.ones(2, 3, device="meta"),
    "fake": fake,
    "sparse_coo": lambda: torch.eye(3).to_sparse(),
    "sparse_csr": lambda: torch.eye(3).to_sparse_csr(),
    "quantized": quantized,
    "freed": freed,
    "subclass:Logged": lambda: torch.Tensor._make_subclass(Logged, torch.ones(2)),
}
if hasattr(torch, "float4_e2m1fn_x2"):
    KINDS["packed"] = packed

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*nested tensors is in prototype"),
    pytest.mark.filterwarnings("ignore:.*Sparse CSR tensor support is in beta"),
    pytest.mark.filterwarnings("ignore:.*Sparse invariant checks are implicitly disabled"),
    pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions"),
]


@pytest.mark.parametrize(("kind", "make"), list(KINDS.items()), ids=list(KINDS))
def test_only_dense_tensors_have_values(kind, make):
    tensor = make()
    form = describe(tensor)
    assert form.kind == kind
    assert form.shape == tuple(tensor.shape)
    assert (values_of(tensor) is not None) == (kind == "dense")


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_have_no_shape(layout):
    assert describe(nested(layout)) == Form("fp32", (), "nested")


@pytest.mark.parametrize("make", [m for k, m in KINDS.items() if k != "dense"], ids=[k for k in KINDS if k != "dense"])
def test_measuring_what_has_no_values_is_an_error_that_says_so(make):
    tensor, reducer = make(), TorchReducer()
    with pytest.raises(TypeError, match="has no values to measure"):
        reducer.measure(tensor, EVERYTHING)
    assert len(reducer.collect()["norm"]) == 0


@pytest.mark.parametrize("cls", [Plain, torch.nn.Parameter])
def test_subclasses_without_operators_of_their_own_are_dense(cls):
    tensor = torch.Tensor._make_subclass(cls, torch.ones(2))
    assert describe(tensor) == Form("fp32", (2,))


def test_a_lazy_parameter_has_no_shape_yet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lazy = torch.nn.LazyLinear(3)
    assert describe(lazy.weight) == Form("fp32", (), "uninitialized")


def test_forms_are_interned():
    assert describe(torch.ones(2, 3)) is describe(torch.zeros(2, 3))
    assert describe(torch.ones(2, 3)) != describe(torch.ones(3, 2))


def test_inside_vmap_there_are_no_values_and_inside_grad_there_are():
    kinds = []

    def look(x):
        kinds.append(describe(x).kind)
        return x.sum()

    torch.func.vmap(look)(torch.ones(2, 3))
    torch.func.grad(look)(torch.ones(3))
    assert kinds == ["functorch", "dense"]


def test_zeros_of_forward_mode_have_no_memory_to_measure():
    zeros = torch._efficientzerotensor((3, 4))
    assert describe(zeros) == Form("fp32", (3, 4), "zerotensor")
    assert values_of(zeros) is None


def test_a_gradient_tracked_value_inside_grad_is_measured():
    reducer = TorchReducer()

    def look(x):
        reducer.measure(x, EVERYTHING)
        return x.square().sum()

    gradient = torch.func.grad(look)(torch.tensor([3.0, 4.0]))
    assert reducer.collect()["norm"].tolist() == [5.0]
    assert gradient.tolist() == [6.0, 8.0]


def test_an_asynchronous_collective_is_waited_for_and_measured():
    functional = pytest.importorskip("torch.distributed._functional_collectives")
    tensor = functional.AsyncCollectiveTensor(torch.tensor([3.0, 4.0]))
    assert describe(tensor) == Form("fp32", (2,))
    reducer = TorchReducer()
    reducer.measure(tensor, EVERYTHING)
    assert reducer.collect()["norm"].tolist() == [5.0]


@pytest.fixture
def rank_3_of_4():
    fake_group = pytest.importorskip("torch.testing._internal.distributed.fake_pg")
    torch.distributed.init_process_group("fake", store=fake_group.FakeStore(), rank=3, world_size=4)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
def test_a_distributed_tensor_is_its_shard_with_a_layout(rank_3_of_4):
    distributed = pytest.importorskip("torch.distributed.tensor")
    if not hasattr(distributed, "DTensor"):  # torch 2.4
        distributed = pytest.importorskip("torch.distributed._tensor")
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    placements = [distributed.Replicate(), distributed.Shard(1)]
    local = torch.arange(12.0).reshape(4, 3)
    tensor = distributed.DTensor.from_local(local, mesh, placements, run_check=False)
    form = describe(tensor)
    assert (form.kind, form.shape) == ("dense", (4, 3))
    layout = Layout.whole((4, 6)).replicate("dp").shard("tp", 1, coordinate=1, parts=2)
    assert read_layout(form.layout) == layout.keyed_globally()
    values = values_of(tensor)
    assert values is not None
    assert values.tolist() == local.tolist()
    partial = distributed.DTensor.from_local(local, mesh, [distributed.Replicate(), distributed.Partial()])
    read = read_layout(describe(partial).layout)
    assert read is not None
    assert read.placements == (Placement("dp", "replicate"), Placement("tp", "partial", op="sum"))
