"""Where a tensor is seen: nodes, sites and forms, the names that records refer to by number.

A record holds only small integers and statistics. What these integers mean is written once, when it
is first seen, in the catalogue of the run: a node (module or operator), a site (one place of a node
where a tensor is seen) and a form (what the tensor looks like).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Direction(str, Enum):
    """When a tensor is seen, relative to the computation that it belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    #: A forward pass run again during backward by activation checkpointing.
    RECOMPUTE = "recompute"
    #: At the end of a backward pass, when gradients have been reduced over ranks: before any clipping.
    REDUCE = "reduce"
    #: At the optimizer's step: what it consumes (accumulated gradients), and what it leaves (state, parameters).
    UPDATE = "update"


class Role(str, Enum):
    """What a tensor is to its node.

    In direction ``backward`` the *input* is the gradient that arrives (with respect to an output of
    the forward), the *output* the gradient that leaves (with respect to an input of the forward, summed
    over all its consumers), and the *gradient* that of a parameter, before accumulation. In direction
    ``reduce`` the *gradient* is what the parameter has gathered so far, reduced over ranks. In direction
    ``update`` the *gradient* is the accumulated one that the optimizer consumes, the *parameter* and the
    *state* are those after the step.
    """

    INPUT = "input"
    OUTPUT = "output"
    PARAMETER = "parameter"
    BUFFER = "buffer"
    GRADIENT = "gradient"
    #: Given to ``msprobe.save``.
    SAVED = "saved"
    #: What the optimizer keeps of a parameter, after its step; the argument is ``weight.exp_avg`` and the like.
    STATE = "state"
    #: Derived by the recorder from other tensors of the node (``weight.update``, router load, attention entropy).
    DERIVED = "derived"


class NodeKind(str, Enum):
    """What a node of the graph stands for."""

    MODULE = "module"
    OP = "op"
    #: A name given to ``msprobe.save``.
    SAVE = "save"
    #: A collective operation over ranks: its inputs, and its outputs when it is complete.
    COLLECTIVE = "collective"


@dataclass(frozen=True, slots=True)
class Node:
    """One module or operator of the graph IR.

    ``path`` is unique in a run: the module path (``model.layers.3.mlp``; the root module is ``""``), and
    for an operator the path of the module that called it, a slash and the operator's name
    (``model.layers.3.mlp/aten.mm.default``; in the root module ``/aten.mm.default``, outside of any module
    ``outside/aten.mm.default``, in the optimizer ``optimizer/aten.add_.Tensor``).
    ``parent`` is the path of the container, None for a node without one.
    ``api`` is the Python function that led to an operator, where known, else "".
    """

    path: str
    kind: NodeKind
    class_name: str
    parent: str | None
    api: str = ""


@dataclass(frozen=True, slots=True)
class Site:
    """One place where a tensor is seen.

    ``argument`` is the path of the tensor inside the call's arguments or result, ``0``,
    ``0.hidden_states``, ``mask``, or the name of a parameter or buffer.
    ``call`` counts the calls of the node in its direction within one micro-step, from 0.
    """

    node: str
    direction: Direction
    role: Role
    argument: str
    call: int = 0


@dataclass(frozen=True, slots=True)
class Form:
    """What a recorded tensor looks like.

    ``dtype`` is canonical (see ``core.dtypes``), ``shape`` is the local shape, ``kind`` is ``dense`` or says
    why no plain values could be read (``meta``, ``fake``, ``nested``, ``sparse_coo``, ...).
    ``layout`` is JSON text: how the local tensor lies in the whole one; "" when it is the whole one.
    """

    dtype: str
    shape: tuple[int, ...]
    kind: str = "dense"
    layout: str = ""
