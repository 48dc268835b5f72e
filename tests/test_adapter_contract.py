"""The contract that every adapter passes, run on the adapter of torch; and that it catches adapters which break it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from msprobe.plugins import plugin_table
from msprobe.testing import Trial, check_adapter
from tests.test_plugins import make_tinynet_trial, with_example

if TYPE_CHECKING:
    from msprobe.core.options import RecordOptions

Array = np.ndarray[Any, Any]


def _make_torch_trial(*, with_optimizer: bool) -> Trial:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    nn = torch.nn
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Dropout(0.2), nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    x = torch.randn(4, 8)

    def step() -> list[Array]:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        parameters = list(model.parameters())
        tensors = [loss, *(p.grad for p in parameters), *parameters]
        return [tensor.detach().clone().numpy() for tensor in tensors]

    def count_hooks() -> int:
        hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
        tensor_hooks = ("_backward_hooks", "_post_accumulate_grad_hooks")
        on_modules = sum(len(getattr(module, name)) for module in model.modules() for name in hooks)
        return on_modules + sum(len(getattr(p, name, None) or ()) for p in model.parameters() for name in tensor_hooks)

    return Trial(model, step, count_hooks, optimizer if with_optimizer else None)


@pytest.mark.parametrize("with_optimizer", [True, False])
def test_the_adapter_of_torch_passes(with_optimizer: bool) -> None:
    adapter = plugin_table().get("adapters", "pytorch")
    check_adapter(adapter, lambda: _make_torch_trial(with_optimizer=with_optimizer), levels=("module", "op", "mix"))


class _Faulty:
    """An adapter of the example that breaks one law."""

    def __init__(self, break_law: Callable[[Any, Any], None]) -> None:
        self._inner = plugin_table().get("adapters", "tinynet")
        self._break = break_law
        self.name = "faulty"

    def owns(self, model: object) -> bool:
        return bool(self._inner.owns(model)) or model == "model"

    def record(self, model: Any, path: Path, options: RecordOptions, **context: Any) -> Any:
        probe = self._inner.record(model, path, options, **context)
        self._break(model, probe)
        return probe

    def save(self, tensor: Any, name: str) -> None:
        self._inner.save(tensor, name)

    def seed_all(self, seed: int, *, deterministic: bool = True) -> None:
        self._inner.seed_all(seed, deterministic=deterministic)


def _change_a_weight(model: Any, _: Any) -> None:
    model.children["first"].parameters["weight"][0, 0] += 1e-12


def _leave_a_hook(model: Any, _: Any) -> None:
    model.children["first"].watchers.append(lambda *_: None)


def _lose_the_backward(model: Any, probe: Any) -> None:
    probe._unwatch()
    observe = probe._observe
    probe._observe = lambda layer, moment, values: observe(layer, moment, values) if "grad" not in moment else None
    probe._watch()


def _raise_later(_: Any, probe: Any) -> None:
    def step() -> None:
        raise OSError("disk full")

    probe.step = step


@with_example
@pytest.mark.parametrize(
    ("check", "fault", "message"),
    [
        ("check_ownership", lambda *_: None, "claims 'model'"),
        ("check_bit_neutral", _change_a_weight, "changes what the model computes"),
        ("check_off_costs_nothing", _leave_a_hook, "leaves 1 hooks in step 0"),
        ("check_reads_back", _lose_the_backward, r"recorded only \['forward'\]"),
    ],
)
def test_an_adapter_that_breaks_a_law_is_caught(check: str, fault: Callable[[Any, Any], None], message: str) -> None:
    from msprobe import testing

    whole = check == "check_bit_neutral"
    with pytest.raises(AssertionError, match=message):
        getattr(testing, check)(_Faulty(fault), make_tinynet_trial if whole else make_tinynet_trial())


@with_example
def test_an_adapter_that_raises_into_the_step_is_caught() -> None:
    from msprobe.testing import check_never_raises

    with pytest.raises(OSError, match="disk full"):
        check_never_raises(_Faulty(_raise_later), make_tinynet_trial)
