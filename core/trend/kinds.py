"""What kind of quantity a site holds, and its tags: layer and kind of parameter, read from its names."""

from __future__ import annotations

import re
from typing import Final

from msprobe.core.errors import TrendError
from msprobe.core.sites import Direction, NodeKind, Role
from msprobe.core.suggestions import closest

#: Kinds of metric; a site's ``kind`` in the index is a position in this list. Positions never change.
KINDS: Final = (
    "activation in",
    "activation out",
    "activation gradient in",
    "activation gradient out",
    "gradient before reduction",
    "gradient after reduction",
    "gradient consumed",
    "parameter",
    "parameter after step",
    "optimizer state",
    "update ratio",
    "collective in",
    "collective out",
    "router",
    "scalar",
    "buffer",
    "saved",
    "recompute",
    "derived",
    "other",
    "attention",
    "update",
)

_BY_PLACE: Final = {
    ("forward", "input"): "activation in",
    ("forward", "output"): "activation out",
    ("forward", "parameter"): "parameter",
    ("backward", "input"): "activation gradient in",
    ("backward", "output"): "activation gradient out",
    ("backward", "gradient"): "gradient before reduction",
    ("reduce", "gradient"): "gradient after reduction",
    ("update", "gradient"): "gradient consumed",
    ("update", "parameter"): "parameter after step",
    ("update", "state"): "optimizer state",
}
#: How a site of a run-wide scalar (loss, learning rate, gradient norm) is named: it has no node.
SCALAR: Final = "scalar"

_LAYER = re.compile(r"(?:^|\.)(?:layers?|blocks?|h|stages?|encoder|decoder)\.(\d+)(?=\.|/|$)")
_ANY_NUMBER = re.compile(r"(?:^|\.)(\d+)(?=\.|/|$)")
_EXPERT = re.compile(r"(?:^|\.)(?:local_)?experts?\.(\d+)(?=\.|/|$)")


def kind_of(node_kind: str, direction: str, role: str, argument: str) -> str:
    """Gives the kind of metric of a site, one of ``KINDS``."""
    if direction == SCALAR:
        return "scalar"
    if node_kind == NodeKind.COLLECTIVE.value:
        return "collective out" if role == Role.OUTPUT.value else "collective in"
    if role == "derived":
        return _derived_kind(argument)
    if role in (Role.BUFFER.value, Role.SAVED.value):
        return role
    if direction == Direction.RECOMPUTE.value:
        return "recompute"
    return _BY_PLACE.get((direction, role), "other")


def _derived_kind(argument: str) -> str:
    """Gives the kind of what the recorder derived; its argument says from what (``router.load``, ``weight.ratio``)."""
    owner, _, what = argument.rpartition(".")
    if owner in ("router", "attention"):
        return owner
    return {"ratio": "update ratio", "update": "update"}.get(what, "derived")


def kind_number(kind: str) -> int:
    """Gives a kind's position in ``KINDS``.

    Raises:
        TrendError: There is no such kind.
    """
    if kind not in KINDS:
        near = closest(kind, KINDS)
        hint = f" Did you mean {near!r}?" if near else ""
        raise TrendError(f"no kind {kind!r}.{hint} There are: {', '.join(KINDS)}.")
    return KINDS.index(kind)


def layer_of(path: str) -> int:
    """Gives the number of the layer that a node lies in; -1 when it is in none.

    >>> layer_of("model.layers.3.mlp.experts.7.w1")
    3
    """
    found = _LAYER.search(path) or _ANY_NUMBER.search(path)
    return int(found[1]) if found else -1


def expert_of(path: str) -> int:
    """Gives the number of the expert that a node belongs to; -1 when it is none.

    >>> expert_of("model.layers.3.mlp.experts.7.w1")
    7
    """
    found = _EXPERT.search(path)
    return int(found[1]) if found else -1


def parameter_kind_of(path: str, class_name: str, argument: str) -> str:
    """Gives what kind of parameter it is by its names: "norm weight", "expert weight", "bias", ...; "" unless one.

    ``argument`` is the name of the parameter (``weight``), or of a state of it (``weight.exp_avg``).
    """
    name = argument.partition(".")[0]
    words = f"{path}.{class_name}".lower()
    for word, kind in (("norm", "norm"), ("expert", "expert"), ("embed", "embedding"), ("router", "router")):
        if word in words:
            return f"{kind} {name}"
    return name
