"""What may explain a difference between two runs besides tensors: versions, modes, arguments, random states."""

from __future__ import annotations

import hashlib
import os
import platform
import random
import socket
import sys
from collections.abc import Mapping
from dataclasses import fields
from importlib import metadata
from typing import TYPE_CHECKING, Any

import torch

from msprobe.adapters.pytorch.isolation import isolated
from msprobe.core.run.batch import RankInfo, RunHeader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from msprobe.core.options import RecordOptions

#: Distributions whose versions are noted when they are loaded.
_PACKAGES = ("numpy", "transformers", "accelerate", "safetensors", "triton", "deepspeed", "peft", "torch_npu")
#: Environment variables that change numbers or place: those that begin like this.
_VARIABLES = (
    "ACLNN_",
    "ASCEND_",
    "CUBLAS_",
    "CUDA_",
    "HCCL_",
    "KMP_",
    "MASTER_",
    "MKL_",
    "NCCL_",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_",
    "PYTHONHASHSEED",
    "PYTORCH_",
    "RANK",
    "LOCAL_RANK",
    "TORCH",
    "WORLD_SIZE",
)
_MAX_CONFIG_TEXT = 2000


def rank_info(mesh: Mapping[str, tuple[int, int]] | None = None) -> RankInfo:
    """Gives who records: from torch.distributed when it is initialised, else from the launcher's variables.

    ``mesh`` holds the rank's coordinate and the number of ranks along each axis.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        rank, size = torch.distributed.get_rank(), torch.distributed.get_world_size()
    else:
        rank, size = _number("RANK", 0), _number("WORLD_SIZE", 1)
    return RankInfo(rank, size, dict(mesh or {}), _device_name(), socket.gethostname())


def run_header(
    options: RecordOptions,
    models: Mapping[str, torch.nn.Module],
    context: Mapping[str, Any],
    *,
    mesh: Mapping[str, int],
    perturbed: bool,
) -> RunHeader:
    """Gives what is known of a run when it starts; ``mesh`` holds the sizes of its axes."""
    return RunHeader(
        framework="pytorch",
        versions=_versions(),
        config={field.name: _json(getattr(options, field.name)) for field in fields(options)},
        mesh=dict(mesh),
        arguments=tuple(sys.argv),
        context={
            "environment": dict(_environment()),
            "modes": _modes(),
            "platform": platform.platform(),
            "models": {name: _model_config(model) for name, model in models.items()},
            "user": _json(context),
        },
        perturbed=perturbed,
    )


def random_states() -> Iterator[tuple[str, str]]:
    """Gives a short hash of the state of each random generator that a model may draw from."""
    if torch._C._functorch.peek_interpreter_stack() is not None:
        return  # inside a torch.func transform even the state is no plain tensor
    with isolated():  # asking takes an operator, which level op would record
        state = torch.get_rng_state().numpy().tobytes()
    yield "torch.cpu", _digest(state)
    yield "python", _digest(str(hash(random.getstate())).encode())  # of numbers: the same in every process
    numpy_random = getattr(sys.modules.get("numpy"), "random", None)
    if numpy_random is not None:
        mersenne = numpy_random.get_state()
        yield "numpy", _digest(mersenne[1].tobytes() + repr(mersenne[2:]).encode())
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        for index in range(torch.cuda.device_count()):
            with isolated():
                state = torch.cuda.get_rng_state(index).numpy().tobytes()
            yield f"torch.cuda:{index}", _digest(state)


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "torch": str(torch.__version__)}
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    for name in _PACKAGES:
        if name in sys.modules:
            try:
                found[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                found[name] = str(getattr(sys.modules[name], "__version__", "unknown"))
    return found


def _environment() -> Iterator[tuple[str, str]]:
    for name in sorted(os.environ):
        if name.startswith(_VARIABLES):
            yield name, os.environ[name]


def _modes() -> dict[str, Any]:
    return {
        "default_dtype": str(torch.get_default_dtype()),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "cudnn_benchmark": torch.backends.cudnn.benchmark,
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "flash_sdp": torch.backends.cuda.flash_sdp_enabled(),
        "mem_efficient_sdp": torch.backends.cuda.mem_efficient_sdp_enabled(),
        "math_sdp": torch.backends.cuda.math_sdp_enabled(),
        "initial_seed": torch.initial_seed(),
    }


def _device_name() -> str:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"


def _model_config(model: torch.nn.Module) -> dict[str, Any]:
    config = getattr(model, "config", None)
    as_dict = getattr(config, "to_dict", None)
    if not callable(as_dict):
        return {}
    found: Any = _json(as_dict())
    return found if isinstance(found, dict) else {}


def _json(value: Any) -> Any:
    """Gives the value in forms that JSON has; other objects as text."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Mapping):
        return {str(name): _json(entry) for name, entry in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(str(entry) for entry in value)
    if isinstance(value, (list, tuple)):
        return [_json(entry) for entry in value]
    return str(value)[:_MAX_CONFIG_TEXT]


def _number(variable: str, default: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else default
