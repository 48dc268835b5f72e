"""What a reader matched by hand: rules in the order of the clicks, with undo, and the mapping file they make."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from msprobe.core.documents import read_document
from msprobe.core.errors import MsprobeError

_NUMBER = re.compile(r"^\d+$")


class EditError(MsprobeError):
    """What was asked for by hand cannot be done."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One rule of the mapping file made by hand: a match, or with ``apart`` two nodes that are none."""

    candidate: tuple[str, ...]
    reference: tuple[str, ...]
    #: How tensors of several nodes become one, as JSON text of the rule's ``combine``; "" when they need not.
    combine: str = ""
    apart: bool = False

    def rule(self) -> dict[str, Any]:
        """Gives the rule as it stands in the file."""
        sides = {
            "candidate": _one_or_list(self.candidate),
            "reference": _one_or_list(self.reference),
        }
        if self.apart:
            return {"apart": sides}
        return {**sides, **({"combine": json.loads(self.combine)} if self.combine else {})}


@dataclass(frozen=True, slots=True)
class Edits:
    """The edits of one reader; those from ``done`` on were undone and can come back."""

    edits: tuple[Edit, ...] = ()
    done: int = 0

    def added(self, edit: Edit) -> Edits:
        """Gives the edits with one more, which replaces what spoke of the same nodes of the candidate."""
        kept = [old for old in self.edits[: self.done] if set(old.candidate).isdisjoint(edit.candidate) or old.apart]
        kept = [old for old in kept if not (old.apart and _is_same(old, edit))]
        return Edits((*kept, edit), len(kept) + 1)

    def undone(self) -> Edits:
        """Gives the edits without the last one."""
        return replace(self, done=max(0, self.done - 1))

    def redone(self) -> Edits:
        """Gives the edits with the one that was undone last."""
        return replace(self, done=min(len(self.edits), self.done + 1))

    @property
    def now(self) -> tuple[Edit, ...]:
        """The edits that hold."""
        return self.edits[: self.done]


def _is_same(old: Edit, new: Edit) -> bool:
    return set(old.candidate) == set(new.candidate) and set(old.reference) == set(new.reference)


def _one_or_list(paths: Sequence[str]) -> Any:
    return paths[0] if len(paths) == 1 else list(paths)


@dataclass(frozen=True)
class MappingText:
    """A mapping file in the making: what the file held that was opened with, and the edits."""

    base: Path | None = None
    _content: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        content = read_document(self.base).content if self.base is not None else {"version": 1, "rules": []}
        object.__setattr__(self, "_content", content if isinstance(content, dict) else {})

    @property
    def is_editable(self) -> bool:
        """Whether rules can be added: the older tool's two-level file has no place for them."""
        return isinstance(self._content.get("rules", []), list) and "version" in self._content

    def write(self, edits: Edits) -> str:
        """Gives the text of the file with the edits; rules of the file that an edit replaces are left out."""
        replaced = [edit.rule() for edit in edits.now]
        names = {str(rule.get("candidate")) for rule in replaced if "apart" not in rule}
        kept = [rule for rule in self._content.get("rules", []) if str(rule.get("candidate")) not in names]
        content = {**self._content, "rules": [*kept, *replaced]}
        return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=120)


def generalise(candidate: Sequence[str], reference: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Puts ``{i}`` for the number of a layer, where every path of both sides has the same first number.

    >>> generalise(["model.layers.3.mlp"], ["layers.3.ffn"])
    (('model.layers.{i}.mlp',), ('layers.{i}.ffn',))
    """
    paths = (*candidate, *reference)
    firsts = {next((part for part in path.split(".") if _NUMBER.match(part)), None) for path in paths}
    if len(firsts) != 1 or None in firsts:
        return tuple(candidate), tuple(reference)
    return tuple(map(_with_placeholder, candidate)), tuple(map(_with_placeholder, reference))


def _with_placeholder(path: str) -> str:
    parts = path.split(".")
    at = next(i for i, part in enumerate(parts) if _NUMBER.match(part))
    return ".".join([*parts[:at], "{i}", *parts[at + 1 :]])
