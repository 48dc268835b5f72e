"""Local experts by their numbers in the whole model.

Where a rank holds some of the experts in a list that counts from 0, an attribute of the list or of the module around it
says which they are: the number of the first (``expert_offset`` and its kin), or all of them (``local_expert_indices``,
as Megatron-LM's layers have).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

if TYPE_CHECKING:
    from msprobe.adapters.pytorch.nodes import WatchedModule

#: Attributes that hold the number of the first local expert.
OFFSETS: Final = ("expert_offset", "local_expert_offset", "experts_start_idx", "expert_start_index")
#: Attributes that hold the numbers of all local experts.
INDICES: Final = ("local_expert_indices",)


@dataclass(frozen=True, slots=True)
class LocalExpert:
    """An expert's path on this rank, and the one that it has in the whole model."""

    path: str
    global_path: str


def local_experts(pairs: Iterable[tuple[WatchedModule, torch.nn.Module]]) -> Iterator[LocalExpert]:
    """Gives the experts that say which of all they are."""
    modules = {watched.path: module for watched, module in pairs}
    for path, module in modules.items():
        if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)) and len(module):
            parent = modules.get(path.rpartition(".")[0])
            numbers = _numbers(module, len(module)) or _numbers(parent, len(module))
            if numbers:
                for local, number in zip(module._modules, numbers, strict=True):
                    yield LocalExpert(f"{path}.{local}" if path else local, f"{path}.{number}" if path else str(number))


def _numbers(module: Any, count: int) -> Sequence[int]:
    for name in INDICES:
        found = getattr(module, name, None)
        if isinstance(found, (list, tuple, range)) and len(found) == count:
            return [int(number) for number in found]
    for name in OFFSETS:
        first = getattr(module, name, None)
        if isinstance(first, int) and not isinstance(first, bool):
            return range(first, first + count)
    return ()
