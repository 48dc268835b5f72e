"""Rules for classes of layers that do not say how they are cut (``register_layouts``), applied while recording.

What a rule says of a parameter or of what enters or leaves a layer is followed on through the operators after it.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from msprobe.adapters.pytorch.parallel.spreads import Spread, settled_along, whole
from msprobe.core.errors import RecordingError

if TYPE_CHECKING:
    from msprobe.adapters.pytorch.parallel.mesh import Mesh
    from msprobe.core.placement import Placement
    from msprobe.core.sites import Direction, Role


class ClassRules:
    """The rules of all targets, asked in order: the first for a class speaks."""

    def __init__(self, targets: Iterable[str] = ()) -> None:
        """Imports the rules.

        Raises:
            RecordingError: A target cannot be imported or holds no rules.
        """
        self._rules: list[Any] = [rule for target in targets for rule in _load(target)]
        self._of_class: dict[str, Any] = {}

    def __bool__(self) -> bool:
        return bool(self._rules)

    def placements(self, class_name: str, direction: Direction, role: Role, argument: str) -> Sequence[Placement]:
        """Gives what is said of one site of a layer of a class."""
        if class_name not in self._of_class:
            fits = (rule for rule in self._rules if fnmatchcase(class_name, rule.layer))
            self._of_class[class_name] = next(fits, None)
        rule = self._of_class[class_name]
        return () if rule is None else rule.placements(direction, role, argument)


def placed_by(
    placements: Iterable[Placement], spread: Spread | None, shape: Sequence[int], mesh: Mesh, axes: Sequence[str]
) -> Spread | None:
    """Gives a tensor of a local shape as placements say, for axes of the mesh that are followed."""
    found = spread
    for placement in placements:
        if placement.axis not in axes or (placement.kind == "shard" and not -len(shape) <= placement.dim < len(shape)):
            continue
        found = settled_along(found or whole(shape), placement.axis)
        if placement.kind == "shard":
            dim = placement.dim % len(shape)
            own, size = mesh.places[placement.axis]
            found = found.cut(placement.axis, dim, ((own * shape[dim], shape[dim]),), size * shape[dim])
        elif placement.kind == "partial":
            found = replace(found, partial=tuple(sorted((*found.partial, (placement.axis, placement.op or "sum")))))
        found = replace(found, known_by="rule")
    return found


def _load(target: str) -> Iterable[Any]:
    module, _, attribute = target.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
        rules = (found() if isinstance(found, type) else found).rules
    except (ImportError, AttributeError, ValueError) as error:
        raise RecordingError(
            f"layouts {target!r}: {type(error).__name__}: {error}. Name an object with rules, as 'module:attribute'."
        ) from error
    return list(rules)
