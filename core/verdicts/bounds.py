"""How large an error rounding explains at each row, given the errors of what it was computed from.

All quantities here are L2 norms over a tensor, in the tensor's own unit. For a result y with sources s (inputs,
parameters), with u the unit roundoff of the coarsest format taking part, a row may show

    local     = roundings * (u * max(|y|, scale / sqrt(K)) + u_accumulate * scale)   computing it once more
    inherited = sum over sources of gain * error(s)                                  what the sources' errors may become

where for a contraction y = W x of length K the scale is |W| |x| (Higham, Accuracy and Stability of Numerical
Algorithms, 2nd ed., section 3.5: the error of a sum of products is bounded by u times the sum of their magnitudes,
for which |W| |x| = sqrt(K) |y| without cancellation), and for anything else the norm of the largest source. The bound
is never multiplied by depth: errors of earlier layers enter only as the measured errors of the sources.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from msprobe.core.dtypes import unit_roundoff
from msprobe.core.grouping import group_numbers
from msprobe.core.sites import Direction, Role
from msprobe.core.sketches import estimate_error

if TYPE_CHECKING:
    from msprobe.core.verdicts.constants import Constants
    from msprobe.core.verdicts.errors import Errors
    from msprobe.core.verdicts.flow import Edges, Flow
    from msprobe.core.verdicts.table import PairTable

Column = NDArray[np.float64]

#: Products are accumulated at least in this format by every matrix unit and library in use.
_ACCUMULATE = unit_roundoff("fp32")

#: How many operators in a row may work on masked values before softmax.
_MASKED_OPERATORS = 4

#: Operators whose result sums products; matched as words of the operator's name.
_CONTRACTIONS = ("mm", "matmul", "linear", "conv", "attention", "dot", "einsum", "tensordot", "mv", "outer", "cdist")


@dataclass
class Bounds:
    """Per row: the difference that is explained (``total``), and the part without errors of sources (``local``)."""

    total: Column
    local: Column
    source: NDArray[np.object_]
    #: The bound before a floor was measured, which says nothing of a fault that passes through.
    derived: Column


@dataclass(frozen=True)
class _Norms:
    """Norms of what takes part in each call, spread to all rows of the call."""

    inputs: Column
    #: Product of the two largest inputs' norms.
    product: Column
    weights: Column
    gradients: Column
    contraction_length: Column
    tokens: Column


def local_bounds(table: PairTable, errors: Errors, flow: Flow, constants: Constants) -> Bounds:
    """Bounds every row from what was recorded of the reference (of the candidate where the reference has none)."""
    norm = table.norm
    roundoff = _roundoff(table, flow)
    contraction = _contractions(table, _call_norms(table))
    scale, length = contraction.scale, contraction.length
    roundings = np.where(_is_own_code(table), constants.own_code_roundings, constants.leaf_roundings)
    largest = _largest_source(table, flow, norm, constants)
    operands = np.fmax(norm, largest)
    with np.errstate(invalid="ignore", over="ignore"):
        spread = np.fmax(operands, scale / np.sqrt(length))
        accumulated = np.where(np.isnan(scale), 0.0, scale) * np.minimum(
            _ACCUMULATE, np.where(roundoff > 0, roundoff, _ACCUMULATE)
        )
        local = roundings * (roundoff * spread + accumulated)
    total = local + _inherited(table, errors, flow, contraction, constants)
    bounds = Bounds(total, local, np.full(len(table), "local", dtype=object), total)
    _bound_external(table, flow, bounds, norm, constants)
    _bound_updates(table, errors, flow, bounds, constants)
    return replace(bounds, derived=bounds.total.copy())


def widen_by_peers(table: PairTable, difference: Column, flow: Flow, bounds: Bounds, constants: Constants) -> Bounds:
    """Adds to the bounds of reduced gradients what errors within the other ranks' own gradients may become.

    Each rank's data flow holds its own gradient alone, while the reduction sums those of all ranks: where the others
    differ by rounding, and the sum cancels (biases before softmax), one rank's own gradient explains nothing. The
    errors of ranks are taken as independent, so their squares add. ``difference`` holds what counts as rounding: NaN
    where a row differs by a fault, which explains nothing.
    """
    count = len(table)
    gradient = table.is_role(Role.GRADIENT)
    own = gradient & table.is_direction(Direction.BACKWARD)
    reduced = gradient & table.is_direction(Direction.REDUCE, Direction.UPDATE)
    if not flow.hubs or not reduced.any():
        return bounds
    into, out = (flow.shared[side] for side in (flow.shared[:, 1] >= count, flow.shared[:, 0] >= count))
    into, out = into[own[into[:, 0]]], out[reduced[out[:, 1]]]
    square = np.square(difference[into[:, 0]])
    of_hub = np.zeros(flow.hubs)
    np.add.at(of_hub, into[:, 1] - count, np.where(np.isfinite(square), square, 0.0))
    more = np.zeros(count)
    np.maximum.at(more, out[:, 1], constants.leaf_gain * np.sqrt(of_hub[out[:, 0] - count]))
    return replace(bounds, total=bounds.total + more, derived=bounds.derived + more)


def _roundoff(table: PairTable, flow: Flow) -> Column:
    """Gives the unit roundoff of the coarsest format among a row and its sources, on either side."""
    own = np.maximum(table.candidate.roundoff, table.reference.roundoff)
    out = own.copy()
    if len(flow.edges):
        np.maximum.at(out, flow.edges[:, 1], own[flow.edges[:, 0]])
    return out


def _is_own_code(table: PairTable) -> NDArray[np.bool_]:
    """Tells which rows were computed by code between sites: inputs, and results of containers."""
    leaf = table.sites.is_leaf[table.site] | table.sites.is_op[table.site]
    return table.is_role(Role.INPUT) | (table.is_role(Role.OUTPUT) & ~leaf)


def _call_norms(table: PairTable) -> _Norms:
    """Combines, for each call, the norms of its float inputs, its matrices and its incoming gradients."""
    facts = table.sites
    call = np.maximum(facts.candidate_call, facts.reference_call)
    lasting = table.is_role(Role.PARAMETER)
    node = facts.node[table.site]
    by_step = group_numbers(node, table.step)
    # A module's backward belongs to its forward call; an operator's call is one computation in one direction.
    operator = facts.is_op[table.site]
    direction = np.where(operator, facts.direction[table.site], 0)
    micro_step, calls = (np.where(lasting, 0, column) for column in (table.micro_step, call[table.site]))
    by_call = group_numbers(node, table.step, micro_step, calls, direction)
    square = np.square(table.norm)
    quantity = ~table.reference.discrete & ~np.isnan(square)
    forward, backward = (
        table.is_direction(Direction.FORWARD, Direction.RECOMPUTE),
        table.is_direction(Direction.BACKWARD),
    )
    matrix = lasting & (np.maximum(table.reference.dimensions, table.candidate.dimensions) >= 2)
    entering = table.is_role(Role.INPUT) & quantity
    inputs, gradients = entering & (forward | operator), entering & backward & ~operator

    def spread(rows: NDArray[np.bool_], numbers: NDArray[np.int64], values: Column, combine: np.ufunc) -> Column:
        out = np.zeros(int(numbers.max(initial=-1)) + 1)
        combine.at(out, numbers[rows], values[rows])
        return out[numbers]

    last, elements = (
        np.fmax(getattr(table.reference, name), getattr(table.candidate, name)) for name in ("last", "elements")
    )
    return _Norms(
        inputs=np.sqrt(spread(inputs, by_call, square, np.add)),
        product=_product_of_two_largest(np.sqrt(square), inputs, by_call),
        weights=np.sqrt(spread(matrix, by_step, square, np.add)),
        gradients=np.sqrt(spread(gradients, by_call, square, np.add)),
        contraction_length=np.fmax(spread(inputs, by_call, last, np.maximum), 1.0),
        tokens=np.fmax(spread(gradients, by_call, elements / np.fmax(last, 1.0), np.maximum), 1.0),
    )


def _product_of_two_largest(norm: Column, rows: NDArray[np.bool_], numbers: NDArray[np.int64]) -> Column:
    """Gives, for each row, the product of the two largest norms among the marked rows with its number."""
    marked = np.flatnonzero(rows)
    marked = marked[np.lexsort((-norm[marked], numbers[marked]))]
    groups = numbers[marked]
    start = np.maximum.accumulate(np.where(np.diff(groups, prepend=-1) != 0, np.arange(len(groups)), 0))
    place = np.arange(len(groups)) - start
    out = np.zeros((2, int(numbers.max(initial=-1)) + 1))
    for rank in range(2):
        out[rank, groups[place == rank]] = norm[marked[place == rank]]
    product: Column = (out[0] * out[1])[numbers]
    return product


@dataclass(frozen=True)
class _Contractions:
    """For results of contractions the product of the operands' norms and the length; else NaN and 1."""

    scale: Column
    length: Column


def _contractions(table: PairTable, norms: _Norms) -> _Contractions:
    forward = table.is_direction(Direction.FORWARD, Direction.RECOMPUTE)
    backward = table.is_direction(Direction.BACKWARD)
    output, gradient = table.is_role(Role.OUTPUT), table.is_role(Role.GRADIENT) & backward
    weighted = norms.weights > 0
    scale = np.full(len(table), np.nan)
    length = np.ones(len(table))
    result = forward & output & weighted & (norms.inputs > 0)
    scale[result], length[result] = (norms.inputs * norms.weights)[result], norms.contraction_length[result]
    passed = backward & output & weighted
    scale[passed], length[passed] = (norms.gradients * norms.weights)[passed], norms.contraction_length[passed]
    # A parameter's gradient sums over tokens the product of the incoming gradient with the input, or with ones
    # (bias), or with normalised values of size one (weights of norms).
    ones = np.sqrt(norms.tokens)
    scale[gradient] = (norms.gradients * np.fmax(norms.inputs, ones))[gradient]
    length[gradient] = norms.tokens[gradient]
    operator = table.sites.is_op[table.site] & output
    contracting = operator & _contracts(table)
    scale[contracting] = norms.product[contracting]
    length[contracting] = norms.contraction_length[contracting]
    scale[operator & ~contracting] = np.nan
    length[operator & ~contracting] = 1.0
    return _Contractions(scale, length)


def _contracts(table: PairTable) -> NDArray[np.bool_]:
    names: dict[str, bool] = {}
    for name in set(table.sites.candidate_class.tolist()) | set(table.sites.reference_class.tolist()):
        words = str(name).lower().replace(".", "_").split("_")
        names[name] = any(word.endswith(key) or word.startswith(key) for word in words for key in _CONTRACTIONS)
    classes = np.where(table.sites.candidate_class != "", table.sites.candidate_class, table.sites.reference_class)
    return np.array([names[name] for name in classes.tolist()], dtype=bool)[table.site]


def _largest_source(table: PairTable, flow: Flow, norm: Column, constants: Constants) -> Column:
    """Gives the norm of the largest source of each row; masks (huge constants) and discrete sources do not count."""
    counts = np.isfinite(norm) & ~_is_mask(table, constants) & ~table.reference.discrete
    largest = np.zeros(len(table))
    edges = flow.edges[counts[flow.edges[:, 0]] & _is_addend(table, flow.edges)]
    np.maximum.at(largest, edges[:, 1], norm[edges[:, 0]])
    return largest


def _is_mask(table: PairTable, constants: Constants) -> NDArray[np.bool_]:
    """Tells which rows hold huge constants (what attention adds where it must not look) beside the quantities."""
    with np.errstate(invalid="ignore"):
        size = table.norm / np.sqrt(np.fmax(table.reference.elements, 1.0))
        return np.asarray(size >= constants.mask_size)


def _effective_error(table: PairTable, errors: Errors, flow: Flow, constants: Constants) -> Column:
    """Gives each row's relative error; of a row that a mask was added to, the largest of its sources'.

    Beside a mask of size 1e38 the error of the scores disappears, but it is back once softmax has removed the mask.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        error = np.where(table.norm > 0, errors.difference / table.norm, 0.0)
    error[~np.isfinite(error)] = 0.0
    masked = _is_mask(table, constants)
    into = flow.edges[masked[flow.edges[:, 1]]]
    for _ in range(_MASKED_OPERATORS if len(into) else 0):
        np.maximum.at(error, into[:, 1], error[into[:, 0]])
    return error


def _is_addend(table: PairTable, edges: Edges) -> NDArray[np.bool_]:
    """Tells which edges may carry a term of a sum, in the unit of the result, and not only a factor of a product.

    Parameters, and forward values that a gradient is computed with, are factors.
    """
    backward = table.is_direction(Direction.BACKWARD, Direction.UPDATE)
    lasting = table.is_role(Role.PARAMETER, Role.BUFFER)
    addend: NDArray[np.bool_] = (backward[edges[:, 0]] == backward[edges[:, 1]]) & ~lasting[edges[:, 0]]
    return addend


def _inherited(
    table: PairTable, errors: Errors, flow: Flow, contraction: _Contractions, constants: Constants
) -> Column:
    """Sums over the sources how far their errors may move the result."""
    out = np.zeros(len(table))
    if not len(flow.edges):
        return out
    source, target = flow.edges.T
    norm, scale = table.norm, contraction.scale[target]
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        relative = _effective_error(table, errors, flow, constants)[source]
        summed = np.fmin(scale, constants.contraction_gain * scale / np.sqrt(contraction.length[target]))
        factor = np.where(_is_own_code(table)[target], constants.own_code_gain, constants.leaf_gain)
        term = np.where(_is_addend(table, flow.edges), norm[source], 0.0)
        other = factor * np.fmax(norm[target], term)
        moved = relative * np.where(np.isnan(scale), other, np.fmax(summed, norm[target]))
    np.add.at(out, target, np.where(np.isfinite(moved), moved, 0.0))
    return out


def _bound_external(table: PairTable, flow: Flow, bounds: Bounds, norm: Column, constants: Constants) -> None:
    """Holds what comes from outside (inputs, first parameters and buffers) to rounding of its format."""
    roundoff = np.maximum(table.candidate.roundoff, table.reference.roundoff)
    lasting = table.is_role(Role.PARAMETER, Role.BUFFER)
    first = flow.first_of_site | (flow.external & ~lasting)
    bounds.total[first] = bounds.local[first] = (constants.leaf_roundings * roundoff * norm)[first]
    bounds.source[first] = "format"


def _bound_updates(table: PairTable, errors: Errors, flow: Flow, bounds: Bounds, constants: Constants) -> None:
    """Bounds an updated parameter by its own earlier error and by what the gradient's error does to the update."""
    if not len(flow.across_steps):
        return
    source, target = flow.across_steps.T
    norm = table.norm
    roundoff = np.maximum(table.candidate.roundoff, table.reference.roundoff)
    before = table.is_role(Role.PARAMETER, Role.BUFFER)[source]
    allowed = np.zeros(len(table))
    updated = np.unique(target)
    bounds.local[updated] = (constants.leaf_roundings * roundoff * norm)[updated]
    np.maximum.at(allowed, target[before], np.nan_to_num(errors.difference[source[before]]))
    moved = np.zeros(len(table))
    np.maximum.at(moved, target[before], _moved(table, source[before], target[before], norm))
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = np.where(norm > 0, errors.difference / norm, 0.0)
    noise = np.zeros(len(table))
    np.maximum.at(noise, target[~before], np.nan_to_num(relative[source[~before]], posinf=1.0))
    share = np.minimum(constants.update_gain * np.sqrt(np.maximum(noise, roundoff)), constants.largest_update)
    # A part of a vector (the keys' third of a fused bias) may have a gradient of rounding alone, of which Adam makes
    # steps of full size in either direction; the gradient's norm does not show that. Matrices show a wrong optimizer.
    vector = np.maximum(table.reference.dimensions, table.candidate.dimensions) <= 1
    share = np.where(vector & (noise > 0), constants.largest_update, share)
    bounds.total[updated] = (bounds.local + constants.leaf_gain * allowed + share * moved)[updated]
    bounds.source[updated] = "optimizer"


def _moved(table: PairTable, before: NDArray[np.int64], after: NDArray[np.int64], norm: Column) -> Column:
    """Estimates how far the larger of both sides' updates moved a parameter: from sketches, else from its norm."""
    sketches = [side.sketch for side in (table.candidate, table.reference) if side.sketch is not None]
    if len(sketches) == 2:
        estimate: Column = np.fmax(*(estimate_error(sketch[after], sketch[before]) for sketch in sketches))
        if not np.isnan(estimate).any():
            return estimate
    change = np.abs(norm[after] - norm[before])
    supposed: Column = np.fmax(np.nan_to_num(change), 1e-2 * np.nan_to_num(norm[after]))
    return supposed
