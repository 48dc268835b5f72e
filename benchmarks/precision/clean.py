"""Pairs of trainings that differ by rounding only: nothing may be called introduced, and almost all must be judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import nn

from benchmarks.precision import rewrites

if TYPE_CHECKING:
    from benchmarks.precision.architectures import Architecture
    from benchmarks.precision.training import Plan

ALL = ("llama", "qwen2", "decoder", "vision")
PLAIN = ("decoder", "vision")
HF = ("llama", "qwen2")


@dataclass(frozen=True, slots=True)
class Side:
    """How one side of a pair is made and trained, as changes to the default."""

    plan: Mapping[str, object] = field(default_factory=dict)
    options: Mapping[str, object] = field(default_factory=dict)
    edit: Callable[[nn.Module], nn.Module | None] | None = None
    dtype: str = "float32"
    around: Callable[[], AbstractContextManager[object]] = nullcontext

    def model(self, architecture: Architecture, seed: int) -> nn.Module:
        model = architecture.model(seed, **self.options).to(getattr(torch, self.dtype))
        return (self.edit(model) if self.edit else None) or model

    def planned(self, plan: Plan) -> Plan:
        return replace(plan, dtype=self.dtype, **self.plan)  # type: ignore[arg-type]


PLAIN_SIDE = Side()


@dataclass(frozen=True, slots=True)
class CleanKind:
    """One way in which two sides differ by rounding only."""

    kind: str
    summary: str
    architectures: tuple[str, ...]
    candidate: Side
    reference: Side = PLAIN_SIDE
    level: str = "module"
    #: Needs a C++ compiler and many seconds.
    slow: bool = False

    def __reduce__(self) -> tuple[Callable[[str], CleanKind], tuple[str]]:
        """Travels to other processes by its name: edits are functions made on the spot."""
        return clean_named, (self.kind,)


def _without_mkldnn() -> AbstractContextManager[object]:
    return torch.backends.mkldnn.flags(enabled=False)


def _channels_last(model: nn.Module) -> None:
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


_INFER = {"mode": "infer"}
_SDPA = {"attn_implementation": "sdpa"}

CLEAN: tuple[CleanKind, ...] = (
    CleanKind("repeated", "the same twice", ALL, Side()),
    CleanKind("threads", "two threads against one", ALL, Side(plan={"threads": 2})),
    CleanKind("bf16", "bf16 against fp32", ALL, Side(dtype="bfloat16")),
    CleanKind("bf16-inference", "bf16 against fp32, no backward", ALL, Side(_INFER, dtype="bfloat16"), Side(_INFER)),
    CleanKind("bf16-both", "bf16 on both sides, two threads against one", ALL,
              Side({"threads": 2}, dtype="bfloat16"), Side(dtype="bfloat16")),
    CleanKind("fp16", "fp16 against fp32, no backward", ALL, Side(_INFER, dtype="float16"), Side(_INFER)),
    CleanKind("fp64", "fp32 against fp64", ALL, Side(), Side(dtype="float64")),
    CleanKind("autocast", "bf16 autocast against fp32", ALL, Side({"autocast": "bfloat16"})),
    CleanKind("autocast-bf16", "bf16 autocast against bf16 weights", HF,
              Side({"autocast": "bfloat16"}), Side(dtype="bfloat16")),
    CleanKind("autocast-fp16", "fp16 autocast against fp32, no backward", ALL,
              Side({**_INFER, "autocast": "float16"}), Side(_INFER)),
    CleanKind("batch-split", "four samples as two micro-batches of two", ("llama", "qwen2", "vision"),
              Side({"accumulation": 2})),
    # Not for vision: with one sample, PyTorch 2.13's BatchNorm gives wrong gradients for a transposed incoming one.
    CleanKind("batch-split-four", "two micro-batches of two as four of one", HF,
              Side({"accumulation": 4}), Side({"accumulation": 2})),
    CleanKind("sdpa", "fused attention kernel against plain operators", HF, Side(options=_SDPA)),
    CleanKind("sdpa-plain", "fused attention kernel against plain operators", PLAIN,
              Side(edit=rewrites.attention_by_kernel)),
    CleanKind("sdpa-bf16", "fused attention kernel against plain operators, both in bf16", HF,
              Side(options=_SDPA, dtype="bfloat16"), Side(dtype="bfloat16")),
    CleanKind("no-mkldnn", "without oneDNN kernels", ALL, Side(around=_without_mkldnn)),
    CleanKind("one-rounding", "every weight moved to the next number", ALL, Side(edit=rewrites.one_rounding)),
    CleanKind("chunked-linear", "linear layers summed in two parts", ALL, Side(edit=rewrites.linear_by_chunks)),
    CleanKind("einsum-linear", "linear layers by einsum", ALL, Side(edit=rewrites.linear_by_einsum)),
    CleanKind("norm-formula", "norms written out", ALL, Side(edit=rewrites.norm_by_formula)),
    CleanKind("activation-formula", "activations written out", ALL, Side(edit=rewrites.activation_by_formula)),
    CleanKind("softmax-formula", "softmax written out", PLAIN, Side(edit=rewrites.softmax_by_formula)),
    CleanKind("folded-scale", "the query scaled instead of the scores", PLAIN,
              Side(edit=rewrites.scale_folded_into_query)),
    CleanKind("one-hot-embedding", "embeddings by a product", ("llama", "qwen2", "decoder"),
              Side(edit=rewrites.embedding_by_product)),
    CleanKind("recompute", "activation checkpointing that stops early against none", ("decoder",),
              Side(options={"recompute": "early-stop"})),
    CleanKind("recompute-reentrant", "reentrant activation checkpointing against none", ("decoder",),
              Side(options={"recompute": "reentrant"})),
    CleanKind("recompute-both", "one kind of activation checkpointing against the other", ("decoder",),
              Side(options={"recompute": "early-stop"}), Side(options={"recompute": "reentrant"})),
    CleanKind("optimizer-loop", "AdamW tensor by tensor", ALL, Side({"implementation": "loop"})),
    CleanKind("optimizer-fused", "AdamW in one kernel", ALL, Side({"implementation": "fused"})),
    CleanKind("sgd-threads", "SGD with momentum, two threads", ALL,
              Side({"optimizer": "sgd", "threads": 2}), Side({"optimizer": "sgd"})),
    CleanKind("wrapped", "inside a wrapper that puts `module.` before every name", ALL,
              Side(edit=rewrites.Wrapped)),
    CleanKind("channels-last", "another memory format", ("vision",), Side(edit=_channels_last)),
    CleanKind("exact-extras", "more operators, all exact, operators recorded", PLAIN,
              Side(edit=rewrites.exact_extras), level="mix"),
    CleanKind("threads-operators", "two threads against one, operators recorded", ALL,
              Side({"threads": 2}), level="mix"),
    CleanKind("clipped", "gradients clipped on both sides, two threads", ALL,
              Side({"clip": 0.1, "threads": 2}), Side({"clip": 0.1})),
    CleanKind("compiled-parts", "MLPs compiled (traced, no code generated)", PLAIN,
              Side(edit=partial(rewrites.compiled_parts, backend="aot_eager"))),
    CleanKind("inference-loop", "one inference mode around all steps, two threads", ("decoder",),
              Side({"mode": "infer-loop", "threads": 2}), Side({"mode": "infer-loop"})),
    CleanKind("compiled-inductor", "MLPs compiled by inductor", ("llama", "decoder"),
              Side(edit=partial(rewrites.compiled_parts, backend="inductor")), slow=True),
)  # fmt: skip


def clean_named(kind: str) -> CleanKind:
    """Finds a clean kind."""
    return next(clean for clean in CLEAN if clean.kind == kind)
