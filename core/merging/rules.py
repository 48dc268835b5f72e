"""Rules by class: how the layers of a class are cut, where neither framework nor tensors tell.

A rule says of outputs, inputs and parameters what each axis of the mesh does to them; ranks hold pieces in the order of
their coordinates. Gradients are cut like what they are gradients of.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msprobe.core.errors import LayoutError
from msprobe.core.placement import AXES, Placement
from msprobe.core.sites import Direction, Role

#: What a rule may speak of.
OUTPUTS, INPUTS, PARAMETERS = "outputs", "inputs", "parameters"
_PLACEMENT = re.compile(r"\s*(?:shard\(\s*(-?\d+)\s*\)|(replicate)|partial\(\s*(\w+)\s*\))\s*")


@dataclass(frozen=True, slots=True)
class LayoutRule:
    """How a class of layer is cut: placements of ``outputs``, of ``inputs``, and of each parameter by name.

    ``layer`` is a class name or a pattern of it (``*ParallelLinear``).
    """

    layer: str
    outputs: tuple[Placement, ...] = ()
    inputs: tuple[Placement, ...] = ()
    parameters: Mapping[str, tuple[Placement, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        layer: str,
        *,
        outputs: Mapping[str, str] | None = None,
        inputs: Mapping[str, str] | None = None,
        parameters: Mapping[str, Mapping[str, str]] | None = None,
    ) -> LayoutRule:
        """Makes a rule from words.

        >>> LayoutRule.of("ColumnParallelLinear", outputs={"tp": "shard(-1)"}).outputs
        (Placement(axis='tp', kind='shard', dim=-1, op=''),)

        Raises:
            LayoutError: A word is no placement, or an axis is unknown.
        """
        named = {name: parse_placements(words) for name, words in (parameters or {}).items()}
        return cls(layer, parse_placements(outputs or {}), parse_placements(inputs or {}), named)

    def placements(self, direction: Direction, role: Role, argument: str) -> tuple[Placement, ...]:
        """Gives what the rule says of one site."""
        if role in (Role.PARAMETER, Role.GRADIENT, Role.BUFFER):
            return self.parameters.get(argument, ())
        if role is Role.STATE:
            return self.parameters.get(argument.rpartition(".")[0], ())
        if role not in (Role.INPUT, Role.OUTPUT):
            return ()
        entering = role is Role.INPUT
        if direction is Direction.BACKWARD:  # the gradient that arrives is that of the output
            entering = not entering
        return self.inputs if entering else self.outputs


def parse_placements(words: Any) -> tuple[Placement, ...]:
    """Reads what axes do to a tensor: ``{"tp": "shard(-1)", "dp": "replicate"}``.

    Raises:
        LayoutError: A word is no placement, or an axis is unknown.
    """
    if not isinstance(words, Mapping):
        raise LayoutError(f"placements are a table such as {{tp: shard(-1)}}, not {words!r}.")
    return tuple(_placement(axis, word) for axis, word in words.items())


def _placement(axis: Any, word: Any) -> Placement:
    if axis not in AXES:
        raise LayoutError(f"no axis is called {axis!r}; the axes are {', '.join(AXES)}.")
    found = _PLACEMENT.fullmatch(str(word))
    if found is None:
        raise LayoutError(f"{word!r} is no placement; write shard(DIMENSION), replicate, or partial(sum).")
    dim, replicate, op = found.groups()
    if dim is not None:
        return Placement(axis, "shard", int(dim))
    return Placement(axis, "replicate") if replicate else Placement(axis, "partial", op=op)
