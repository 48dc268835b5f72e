"""Parameters that ``DistributedDataParallel`` keeps alike on all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msprobe.adapters.pytorch.dtensors import local_of
from msprobe.adapters.pytorch.holdings import DataParallel, Found, place

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from msprobe.adapters.pytorch.placed import Placed


class Replica:
    """A parameter that every rank holds whole, and whose gradients are averaged."""

    def __init__(self, parameter: torch.nn.Parameter, wrapper: Any, group: DataParallel) -> None:
        self._parameter, self._wrapper = parameter, wrapper
        self.group = group

    @property
    def updated(self) -> torch.Tensor:
        """The parameter."""
        return self._parameter

    def part(self, tensor: torch.Tensor) -> torch.Tensor | Placed:
        """Gives what the optimizer keeps, which is alike on all ranks."""
        return self.group.replicated(local_of(tensor))

    def stored(self) -> torch.Tensor | Placed:
        """Gives the parameter."""
        return self.group.replicated(local_of(self._parameter))

    def used(self) -> torch.Tensor:
        """Gives the parameter."""
        return self._parameter

    def gradient(self) -> torch.Tensor | Placed | None:
        """Gives what has been accumulated."""
        gradient = self._parameter.grad
        return None if gradient is None else self.group.replicated(local_of(gradient))

    def reduces(self) -> bool:
        """Tells whether gradients are reduced: not inside of ``no_sync``."""
        return bool(self._wrapper.require_backward_grad_sync)


def find_replicas(root: torch.nn.Module) -> Iterator[Found]:
    """Gives the models that ``DistributedDataParallel`` wraps."""
    wrapper: Any
    for wrapper in root.modules():
        if not any(kind.__name__ == "DistributedDataParallel" for kind in type(wrapper).__mro__):
            continue
        group = wrapper.process_group
        ranks = DataParallel((place("dp", group),), float(group.size()))
        ignored = set(getattr(wrapper, "parameters_to_ignore", ()))
        holdings: dict[int, Replica] = {}
        parameters = []
        for path, module in wrapper.module.named_modules(remove_duplicate=False):
            for name, parameter in module._parameters.items():
                if parameter is None or (f"{path}.{name}" if path else name) in ignored:
                    continue
                holding = holdings.setdefault(id(parameter), Replica(parameter, wrapper, ranks))
                parameters.append((module, name, holding))
        yield Found(wrapper, parameters, ranks, _facts(wrapper, ranks))


def _facts(wrapper: Any, group: DataParallel) -> dict[str, Any]:
    facts = {
        "wrapper": "DistributedDataParallel",
        "find_unused_parameters": bool(wrapper.find_unused_parameters),
        "static_graph": bool(wrapper.static_graph),
        "gradient_divisor": group.divisor,
        "ranks": group.sizes,
    }
    mixed = getattr(wrapper, "mixed_precision", None)
    for name in ("param_dtype", "reduce_dtype", "buffer_dtype"):
        dtype = getattr(mixed, name, None)
        if dtype is not None:
            facts[name] = str(dtype).removeprefix("torch.")
    return facts
