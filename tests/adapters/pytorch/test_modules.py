"""What is in the run after recording at module level."""

from __future__ import annotations

from collections import Counter, OrderedDict, namedtuple
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import msprobe

IDS = torch.tensor([[1, 2, 3], [4, 5, 6]])


def _train_once(model, path, **options):
    with msprobe.record(model, path, trace=False, **options) as probe:
        loss = model(IDS, labels=IDS)["loss"]
        loss.backward()
        probe.step()


def test_every_module_has_inputs_outputs_and_gradients(transformer, tmp_path, read):
    _train_once(transformer, tmp_path / "run")
    places = set(read(tmp_path / "run").places())
    for path, module in transformer.named_modules():
        if isinstance(module, nn.ModuleList):
            continue
        assert f"{path}|forward|input|0|0" in places
        output = "logits" if path == "" else "0"
        assert {f"{path}|forward|output|{output}|0", f"{path}|backward|input|{output}|0"} <= places
        for name, _ in module.named_parameters(recurse=False):
            expected = {
                f"{path}|{place}|{name}|0" for place in ("forward|parameter", "backward|gradient", "update|gradient")
            }
            assert expected <= places


def test_each_site_is_recorded_once_in_a_micro_step(transformer, tmp_path, read):
    _train_once(transformer, tmp_path / "run")
    assert set(Counter(read(tmp_path / "run").places()).values()) == {1}


def test_recorded_tensors_equal_what_the_model_computed(transformer, tmp_path, read):
    kept: dict[str, torch.Tensor] = {}
    for path, module in transformer.named_modules():
        module.register_forward_hook(lambda m, a, out, path=path: kept.__setitem__(path, out))
    _train_once(transformer, tmp_path / "run", what="statistics,tensors")
    run = read(tmp_path / "run")
    for path in ("embed", "layers.0.attention", "layers.1.norm", "layers.1"):
        row, expected = run.at(f"{path}|forward|output|0|0"), kept[path].detach().numpy()
        np.testing.assert_array_equal(row.tensor, expected)
        assert row.values["mean"] == pytest.approx(expected.mean(dtype=np.float64), rel=1e-6, abs=1e-9)
    for name, parameter in transformer.named_parameters():
        path, _, leaf = name.rpartition(".")
        np.testing.assert_array_equal(run.at(f"{path}|update|gradient|{leaf}|0").tensor, parameter.grad.numpy())


def test_gradients_equal_those_of_autograd(transformer, tmp_path, read):
    result = transformer(IDS, labels=IDS)
    logits_gradient, weight_gradient = torch.autograd.grad(
        result["loss"], [result["logits"], transformer.layers[0].up.weight]
    )
    _train_once(transformer, tmp_path / "run", what="tensors")
    run = read(tmp_path / "run")
    np.testing.assert_array_equal(run.at("head|backward|input|0|0").tensor, logits_gradient.numpy())
    np.testing.assert_array_equal(run.at("layers.0.up|backward|gradient|weight|0").tensor, weight_gradient.numpy())


def test_same_tensor_is_measured_once(transformer, tmp_path, read):
    _train_once(transformer, tmp_path / "run", what="tensors")
    run = read(tmp_path / "run")
    layer, following = run.at("layers.0|forward|output|0|0"), run.at("layers.1|forward|input|0|0")
    assert layer.values["tensor"] == following.values["tensor"] == layer.values["seq"]
    assert (
        run.at("embed|forward|parameter|weight|0").values["tensor"]
        == run.at("head|forward|parameter|weight|0").values["tensor"]
    )


def test_tied_weights_have_a_gradient_under_each_name(transformer, tmp_path, read):
    _train_once(transformer, tmp_path / "run", what="tensors")
    run = read(tmp_path / "run")
    for place in ("backward|gradient|weight|0", "update|gradient|weight|0"):
        first, second = run.at(f"embed|{place}"), run.at(f"head|{place}")
        np.testing.assert_array_equal(first.tensor, second.tensor)
        assert first.values["tensor"] == second.values["tensor"]


def test_batch_and_first_parameters_carry_checksums(transformer, tmp_path, read):
    from msprobe.core.records import HAS

    with msprobe.record(transformer, tmp_path / "run", trace=False, what="statistics") as probe:
        for _ in range(2):
            transformer(IDS)
            probe.step()
    run = read(tmp_path / "run")
    checksums = {r.place for r in run.rows if r.values["has"] & HAS["checksums"] and r.step == 0}
    assert {"|forward|input|0|0", "layers.0.up|forward|parameter|weight|0"} <= checksums
    assert run.at("|forward|input|0|0", step=1).values["has"] & HAS["checksums"]
    assert not run.at("layers.0.up|forward|parameter|weight|0", step=1).values["has"] & HAS["checksums"]


def test_settings_and_arguments_are_facts(transformer, tmp_path, read):
    _train_once(transformer, tmp_path / "run")
    run = read(tmp_path / "run")
    assert run.fact("layers.0.norm", "scalar", "eps") == [1e-6]
    assert run.fact("layers.0.attention", "scalar", "num_heads") == [2]
    assert run.fact("layers.0.attention", "argument", "causal") == [True]
    assert run.fact("layers.0.act", "scalar", "approximate") == ["none"]
    assert run.fact("<run>", "rng", "torch.cpu")


def test_a_changed_setting_is_noted_again(transformer, tmp_path, read):
    with msprobe.record(transformer, tmp_path / "run", trace=False) as probe:
        for eps in (1e-6, 1e-6, 1e-3):
            transformer.layers[0].norm.eps = eps
            transformer(IDS)
            probe.step()
    assert read(tmp_path / "run").fact("layers.0.norm", "scalar", "eps") == [1e-6, 1e-3]


Pair = namedtuple("Pair", "left right")


@dataclass
class Result:
    hidden: torch.Tensor
    extra: tuple


class Nested(nn.Module):
    def forward(self, pair, table, *, mask=None, flag=True):
        x = pair.left + table["a"][0]
        return OrderedDict(first=x, rest=Result(x + 1, (x + 2, None, {"deep": x + 3})))


def test_nested_structures_are_followed(tmp_path, read):
    model, one = Nested(), torch.ones(2)
    with msprobe.record(model, tmp_path / "run", trace=False) as probe:
        model(Pair(one, one * 2), {"a": [one * 3, "text"]}, mask=one * 4)
        probe.step()
    run = read(tmp_path / "run")
    assert run.places() == [
        "|forward|input|0.left|0",
        "|forward|input|0.right|0",
        "|forward|input|1.a.0|0",
        "|forward|input|mask|0",
        "|forward|output|first|0",
        "|forward|output|rest.hidden|0",
        "|forward|output|rest.extra.0|0",
        "|forward|output|rest.extra.2.deep|0",
    ]
    assert run.fact("", "argument", "1.a.1") == ["text"]


def _rectifier():
    """An identity whose output a ReLU then overwrites."""
    convolution = nn.Conv1d(1, 1, 1, bias=False)
    nn.init.ones_(convolution.weight)
    return nn.Sequential(convolution, nn.ReLU(inplace=True))


def test_content_changed_in_place_is_new_content(tmp_path, read):
    model = _rectifier()
    with torch.no_grad(), msprobe.record(model, tmp_path / "run", trace=False, what="tensors") as probe:
        model(torch.tensor([[-3.0, 3.0, -1.0]]))
        probe.step()
    run = read(tmp_path / "run")
    np.testing.assert_array_equal(run.at("1|forward|output|0|0").tensor, [[0, 3, 0]])
    np.testing.assert_array_equal(run.at("0|forward|output|0|0").tensor, [[-3, 3, -1]])
    assert run.at("0|forward|output|0|0").values["tensor"] == run.at("1|forward|input|0|0").values["tensor"]


def test_inference_mode_measures_what_an_in_place_kernel_left(tmp_path, read):
    model = _rectifier()
    with torch.inference_mode(), msprobe.record(model, tmp_path / "run", trace=False) as probe:
        model(torch.tensor([[-3.0, 3.0, -1.0]]))
        probe.step()
    run = read(tmp_path / "run")
    assert run.at("0|forward|output|0|0").values["min"] == -3
    assert run.at("1|forward|output|0|0").values["min"] == 0 == run.at("|forward|output|0|0").values["min"]
    assert run.kinds() == []


def test_shared_module_is_one_node_with_two_paths(tmp_path, read):
    shared = nn.Linear(2, 2)
    model = nn.Sequential(shared, nn.Tanh(), shared)
    with msprobe.record(model, tmp_path / "run", trace=False) as probe:
        model(torch.ones(1, 2)).sum().backward()
        probe.step()
    run = read(tmp_path / "run")
    assert run.fact("0", "shared", "paths") == [["0", "2"]]
    assert {"0|forward|output|0|0", "0|forward|output|0|1", "0|backward|input|0|1"} <= set(run.places())
    assert not any(place.startswith("2|") for place in run.places())


def test_a_module_that_calls_itself_is_counted(tmp_path, read):
    class Recursive(nn.Module):
        def forward(self, x, depth=2):
            return self(x + 1, depth - 1) if depth else x

    model = Recursive()
    with msprobe.record(model, tmp_path / "run", trace=False) as probe:
        model(torch.zeros(1))
        probe.step()
    places = read(tmp_path / "run").places()
    assert [p for p in places if "input" in p] == [f"|forward|input|0|{call}" for call in range(3)]
    assert [p for p in places if "output" in p] == [f"|forward|output|0|{call}" for call in (2, 1, 0)]


def test_lazy_module_is_recorded_as_what_it_becomes(tmp_path, read):
    model = nn.Sequential(nn.LazyLinear(3))
    with msprobe.record(model, tmp_path / "run", trace=False) as probe:
        model(torch.ones(2, 4)).sum().backward()
        probe.step()
    run = read(tmp_path / "run")
    assert run.nodes["0"].class_name == "Linear"
    assert run.at("0|forward|parameter|weight|0").shape == (3, 4)
    assert run.at("0|backward|gradient|weight|0").shape == (3, 4)
    assert run.kinds() == []


def test_parameters_used_without_calling_their_module_are_recorded(tmp_path, read):
    model = nn.MultiheadAttention(4, 2)
    x = torch.randn(3, 1, 4)
    with msprobe.record(model, tmp_path / "run", trace=False) as probe:
        model(x, x, x)[0].sum().backward()
        probe.step()
    places = read(tmp_path / "run").places()
    assert {"out_proj|forward|parameter|weight|0", "out_proj|backward|gradient|weight|0"} <= set(places)


def test_sparse_gradients_are_noted(tmp_path, read):
    model = nn.Embedding(5, 2, sparse=True)
    with msprobe.record(model, tmp_path / "run", trace=False) as probe:
        model(torch.tensor([1, 1, 3])).sum().backward()
        probe.step()
    run = read(tmp_path / "run")
    assert run.at("|backward|gradient|weight|0").status != 0
    assert run.kinds() == []


def test_switches_leave_out_what_they_name(transformer, tmp_path, read):
    _train_once(transformer, tmp_path / "run", inputs=False, gradients=False, parameters=False)
    roles = {tuple(place.split("|")[1:3]) for place in read(tmp_path / "run").places()}
    assert roles == {("forward", "output")}


def test_targets_limit_what_is_recorded(transformer, tmp_path, read):
    _train_once(transformer, tmp_path / "run", targets="layers.1.*", exclude="*.norm")
    paths = {place.split("|")[0] for place in read(tmp_path / "run").places()}
    assert paths == {
        f"layers.1.{name}" for name in ("attention", "attention.qkv", "attention.out", "up", "act", "down")
    }


def test_stacks_name_the_line_of_the_user(transformer, tmp_path, read):
    _train_once(transformer, tmp_path / "run", stacks=True)
    run = read(tmp_path / "run")
    stacks = [stack for stack in run.rank.stacks if any("conftest.py" in line for line in stack)]
    assert stacks
    assert not any("site-packages/torch" in line for stack in stacks for line in stack)
    assert Path(__file__).name in stacks[0][-2] or Path(__file__).name in "".join(stacks[0])


def test_functorch_tensors_are_a_gap(tmp_path, read):
    model = nn.Linear(2, 1)
    parameters = dict(model.named_parameters())

    def loss(parameters, x):
        return torch.func.functional_call(model, parameters, (x,)).sum()

    with msprobe.record(model, tmp_path / "run", trace=False) as probe:
        gradients = torch.func.grad(loss)(parameters, torch.ones(1, 2))
        probe.step()
    np.testing.assert_array_equal(gradients["weight"].numpy(), [[1, 1]])
    assert set(read(tmp_path / "run").kinds()) == {"gap"}
