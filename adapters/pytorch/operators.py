"""What the schema of an operator tells: its arguments, which of them it writes, and what its outputs are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Schema namespaces of collectives; their outputs are complete only after a wait.
COLLECTIVES = frozenset({"c10d", "_c10d_functional", "c10d_functional", "_c10d_functional_autograd"})
#: Operators whose outputs are memory that nobody has written yet.
UNWRITTEN = frozenset(
    {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
    | {"_empty_affine_quantized", "_empty_per_channel_affine_quantized", "empty_quantized"}
)
#: Operators that write all of ``self`` without reading it.
OVERWRITING = frozenset(
    {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "exponential_", "log_normal_", "cauchy_"}
    | {"geometric_", "set_", "_foreach_zero_", "_foreach_copy_"}
)


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator as its schema describes it; for a higher-order operator there is no schema and all is assumed."""

    #: ``aten.mm.default``; a higher-order operator has its plain name (``cond``).
    name: str
    #: Names of the positional arguments, in order; empty for a higher-order operator.
    arguments: tuple[str, ...] = ()
    #: Arguments that the operator writes.
    mutated: frozenset[str] = field(default_factory=frozenset)
    #: Those of them whose old values it does not read (``out=``, and ``self`` of ``copy_``).
    overwritten: frozenset[str] = field(default_factory=frozenset)
    #: ``out=`` arguments: not an input at all.
    out: frozenset[str] = field(default_factory=frozenset)
    #: Its outputs are memory that nobody has written yet.
    is_unwritten: bool = False
    #: Its outputs do not depend on the values of its operands (``zeros_like``).
    is_constant: bool = False
    is_collective: bool = False
    #: It only marks ranges or asks for properties.
    is_bookkeeping: bool = False


#: Namespaces of operators that compute nothing.
BOOKKEEPING = frozenset({"profiler", "prim"})

_KNOWN: dict[Any, Operator] = {}
_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)
_PLAIN_VALUES = (int, float, bool, str, torch.dtype, torch.device, torch.layout)


def operator_of(func: Any) -> Operator:
    """Describes an operator as ``__torch_dispatch__`` receives it."""
    known = _KNOWN.get(func)
    if known is None:
        known = _KNOWN[func] = _describe(func)
    return known


def _describe(func: Any) -> Operator:
    schema = getattr(func, "_schema", None)
    if schema is None:
        return Operator(_plain_name(func), is_bookkeeping=getattr(func, "namespace", "") in BOOKKEEPING)
    namespace, _, short = schema.name.partition("::")
    mutated = frozenset(a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write)
    out = frozenset(a.name for a in schema.arguments if a.is_out)
    overwritten = out | (mutated & {"self"} if short in OVERWRITING else frozenset())
    if namespace == "c10d":  # the schemas do not tell what is written
        mutated = frozenset(a.name for a in schema.arguments if "Tensor" in str(a.type))
    return Operator(
        name=str(func),
        arguments=tuple(a.name for a in schema.arguments),
        mutated=mutated,
        overwritten=overwritten,
        out=out,
        is_unwritten=short in UNWRITTEN,
        is_constant=short in UNWRITTEN or short.endswith("_like") or short.startswith("new_"),
        is_collective=namespace in COLLECTIVES and short != "wait_tensor",
        is_bookkeeping=namespace in BOOKKEEPING,
    )


def _plain_name(func: Any) -> str:
    name = getattr(func, "name", None)
    return str(name() if callable(name) else name or func)


@dataclass(slots=True)
class Operands:
    """The arguments of one call: tensors and other values, each with its name."""

    tensors: list[tuple[str, torch.Tensor]]
    values: list[tuple[str, Any]]


def operands_of(operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Operands:
    """Sorts the arguments of a call into tensors and values, named as in the schema (``self``, ``tensors.0``)."""
    operands = Operands([], [])
    names = operator.arguments
    for i, value in enumerate(args):
        name = names[i] if i < len(names) else str(i)
        kind = type(value)
        if kind in _PLAIN_TENSORS:
            operands.tensors.append((name, value))
        elif kind in _PLAIN_VALUES:
            operands.values.append((name, value))
        elif value is not None:
            _sort(name, value, operands)
    for name, value in kwargs.items():
        _sort(name, value, operands)
    return operands


def _sort(name: str, value: Any, operands: Operands) -> None:
    if isinstance(value, torch.Tensor):
        operands.tensors.append((name, value))
    elif isinstance(value, (list, tuple)) and _holds_tensors(value):
        for i, part in enumerate(value):
            _sort(f"{name}.{i}", part, operands)
    elif isinstance(value, dict):
        for key, part in value.items():
            _sort(f"{name}.{key}", part, operands)
    elif value is not None:
        operands.values.append((name, value))


def _holds_tensors(values: list[Any] | tuple[Any, ...]) -> bool:
    return any(isinstance(v, (torch.Tensor, list, tuple, dict)) for v in values)


def outputs_of(result: Any) -> list[tuple[str, torch.Tensor]]:
    """Gives the tensors of a result with their names: ``0`` for a single one, ``1.0`` for a nested one."""
    if type(result) is torch.Tensor:
        return [("0", result)]
    return list(_outputs(result, ""))


def _outputs(result: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(result, torch.Tensor):
        yield name or "0", result
    elif isinstance(result, (list, tuple)):
        for i, part in enumerate(result):
            yield from _outputs(part, f"{name}.{i}" if name else str(i))
    elif isinstance(result, dict):
        for key, part in result.items():
            yield from _outputs(part, f"{name}.{key}" if name else str(key))


def describe_value(value: Any) -> object:
    """Gives what a run can keep of a non-tensor argument: numbers and text as they are, else its text or type."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (torch.dtype, torch.device, torch.layout, torch.memory_format, complex, torch.SymInt)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return [describe_value(part) for part in value]
    name = getattr(value, "__qualname__", None)
    return name if isinstance(name, str) else type(value).__name__
