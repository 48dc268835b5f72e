"""Stages of a pipeline as ``torch.distributed.pipelining`` runs them: which stage a module is, and which micro-batch.

A stage calls its module from ``forward_one_chunk``, whose frame tells the number of the micro-batch: the order of calls
is no key, for schedules interleave stages and passes. Calls from elsewhere in the stage only find out shapes.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from msprobe.adapters.pytorch.holdings import Place, place

if TYPE_CHECKING:
    import torch

    from msprobe.adapters.pytorch.nodes import WatchedModule
    from msprobe.core.recorder import Recorder

_STAGES: Final = "torch.distributed.pipelining.stage"
_SCHEDULES: Final = "torch.distributed.pipelining.schedules"
_ONE_CHUNK: Final = "forward_one_chunk"
#: How the paths of further stages of a rank begin.
STAGE_PREFIX: Final = "stage_{index}"


@dataclass(frozen=True, slots=True)
class StageCall:
    """A call of a stage's module: the stage's place among all, and the micro-batch (None: only shapes are asked).

    ``micro_batches`` tells how many make a step, if the schedule divides the gradients by that at the end.
    """

    stage: int
    stages: int
    micro_batch: int | None
    micro_batches: int = 1

    def note(self, recorder: Recorder, watched: WatchedModule) -> None:
        """Notes which part of the whole model a module is."""
        recorder.fact(watched.node, "parallel", "stage", self.stage)
        recorder.fact(watched.node, "parallel", "stages", self.stages)
        if watched.path:
            recorder.fact(watched.node, "parallel", "path", "")


def stage_call(module: torch.nn.Module) -> StageCall | None:
    """Tells by which stage a module, called by no other module, is being called; None where no pipeline calls it."""
    if _STAGES not in sys.modules:
        return None
    stage: Any = None
    chunk: int | None = None
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__")
        owner: Any = frame.f_locals.get("self")
        if name == _STAGES and hasattr(owner, "submod"):
            stage = owner
            if frame.f_code.co_name == _ONE_CHUNK:
                chunk = frame.f_locals.get("fwd_chunk_id")
        elif name == _SCHEDULES and stage is not None and hasattr(owner, "_n_microbatches"):
            divides = getattr(owner, "scale_grads", False)
            return _call_of(stage, module, chunk, owner._n_microbatches if divides else 1)
        frame = frame.f_back
    return _call_of(stage, module, chunk, 1) if stage is not None else None


def _call_of(stage: Any, module: torch.nn.Module, chunk: int | None, micro_batches: int) -> StageCall | None:
    if chunk is not None and not _holds(stage, module):
        return None
    return StageCall(stage.stage_index, stage.num_stages, chunk, micro_batches)


def stages_of(models: Iterable[torch.nn.Module]) -> list[Any]:
    """Finds the stages of a pipeline that hold the models, among all objects there are."""
    known = sys.modules.get(_STAGES)
    base = getattr(known, "_PipelineStageBase", None)
    if base is None:
        return []
    models = list(models)
    stages = [thing for thing in gc.get_objects() if issubclass(type(thing), base)]
    return [stage for stage in stages if any(_holds(stage, model) for model in models)]


def pipeline_places(models: Iterable[torch.nn.Module]) -> list[Place]:
    """Gives this rank's place along the axis of the pipeline; none where the models are no stages."""
    for stage in stages_of(models):
        group = getattr(stage, "group", None)
        return [place("pp", group if group is not None else _world())]
    return []


def _world() -> Any:
    from torch.distributed import group

    return group.WORLD


def named_models(model: Any) -> dict[str, torch.nn.Module]:
    """Gives what is to be watched by the beginning of its paths: a model, models by name, or stages of a pipeline.

    Of several stages all but the first get the prefix ``stage_<index>``; the run says which of their modules are whose.
    """
    if isinstance(model, Mapping):
        return {name: _module_of(part) for name, part in model.items()}
    if not isinstance(model, (list, tuple)):
        return {"": _module_of(model)}
    numbers = [getattr(part, "stage_index", number) for number, part in enumerate(model)]
    prefixes = ["", *(STAGE_PREFIX.format(index=number) for number in numbers[1:])]
    return {prefix: _module_of(part) for prefix, part in zip(prefixes, model, strict=True)}


def are_models(model: Any) -> bool:
    """Tells whether something is a module, a stage of a pipeline, or several of these."""
    torch = sys.modules.get("torch")
    parts = model if isinstance(model, (list, tuple)) else [model]
    return torch is not None and bool(parts) and all(isinstance(_module_of(part), torch.nn.Module) for part in parts)


def _module_of(part: Any) -> Any:
    is_stage = any(kind.__module__ == _STAGES for kind in type(part).__mro__)
    return part.submod if is_stage else part


def _holds(stage: Any, module: torch.nn.Module) -> bool:
    held = getattr(stage, "submod", None)
    return held is module or module in _wrapped(held)


def _wrapped(module: Any) -> Iterable[Any]:
    """Gives the modules in wrappers such as those of data parallelism, which have one child."""
    while module is not None and len(getattr(module, "_modules", ())) == 1:
        (module,) = module._modules.values()
        yield module
