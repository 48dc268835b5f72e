"""Records every operator, forward and backward, below autograd: level op and mix.

``OpRecorder`` is a dispatch mode. The session installs it (``modes.install``) while a step is recorded, keeps
``attribution`` fed from the module hooks, and at level op passes ``tracer`` in the traced step::

    ops = OpRecorder(recorder, attribution, options)
    ops.tracer = Tracer(recorder)     # in the traced step; None afterwards. The hooks feed the same tracer
    install(ops)
    ...
    uninstall(ops)
    ops.new_step()                    # before recorder.end_step()

Node paths are ``<module path>/<operator>``; code outside of any module runs at ``outside/<operator>``, the optimizer at
``optimizer/<operator>``. Sites are the operator's tensors by the names of its schema, the results by position.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msprobe.adapters.pytorch.compiled import has_compiled
from msprobe.adapters.pytorch.contents import Content, Contents
from msprobe.adapters.pytorch.dynamo import UncompiledMode
from msprobe.adapters.pytorch.formulas import Formulas
from msprobe.adapters.pytorch.operators import describe_value, operands_of, operator_of, outputs_of
from msprobe.adapters.pytorch.python_api import is_in_compiled_code, python_api
from msprobe.adapters.pytorch.stacks import python_stack
from msprobe.core.errors import RecordingError
from msprobe.core.records import Status
from msprobe.core.sites import Direction, NodeKind, Role

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from msprobe.adapters.pytorch.attribution import Attribution
    from msprobe.adapters.pytorch.operators import Operands, Operator
    from msprobe.adapters.pytorch.parallel.layouts import Layouts
    from msprobe.adapters.pytorch.tracing import Tracer
    from msprobe.core.options import RecordOptions
    from msprobe.core.recorder import Recorder

OUTSIDE = "outside"
OPTIMIZER = "optimizer"
#: Arguments of these types are the same when they are equal.
_UNCHANGEABLE = (int, float, bool, str)
_COMPILED = (
    "the model holds compiled modules, and operators inside compiled code cannot be recorded. "
    "Record at level 'module', or set allow_decompile to run them uncompiled (the run is then marked altered)."
)


def refuse_compiled(model: torch.nn.Module, options: RecordOptions, recorder: Recorder) -> None:
    """Refuses op level for a model that holds compiled modules.

    With ``options.allow_decompile`` it writes the event "altered" instead.

    Raises:
        RecordingError: A module is compiled and ``allow_decompile`` is off.
    """
    if not has_compiled([model]):
        return
    if not options.allow_decompile:
        raise RecordingError(f"level {options.level!r}: {_COMPILED}")
    recorder.event("altered", "compiled regions run uncompiled while operators are recorded")


@dataclass(slots=True)
class _Sites:
    """What is known of the n-th call of an operator in one module and direction: its sites, and its plain arguments."""

    number: int
    of_role: dict[Role, dict[str, int]] = field(default_factory=lambda: {Role.INPUT: {}, Role.OUTPUT: {}})
    values: dict[str, tuple[Any, type]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _OpNode:
    """The node of an operator in one module, what is kept of it, and its calls by direction."""

    number: int
    path: str
    what: frozenset[str]
    calls: dict[Direction, list[_Sites]] = field(default_factory=lambda: {d: [] for d in Direction})


@dataclass(slots=True)
class _OpCall:
    """One operator under way; ``sites`` is None when nothing of it is kept."""

    operator: Operator
    operands: Operands
    node: _OpNode
    direction: Direction
    micro_step: int
    sites: _Sites | None = None
    inputs: list[tuple[int, torch.Tensor]] = field(default_factory=list)


class OpRecorder(UncompiledMode):
    """Records inputs, outputs and arguments of every operator while it is the active dispatch mode."""

    supports_higher_order_operators = True

    def __init__(self, recorder: Recorder, attribution: Attribution, options: RecordOptions) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.tracer: Tracer | None = None
        #: How tensors lie in the whole ones, on a mesh of several ranks.
        self.layouts: Layouts | None = None
        self._recorder = recorder
        self._attribution = attribution
        self._options = options
        #: Which contents were recorded; module hooks ask it too.
        self.contents = Contents()
        #: Operators whose recording failed, and where.
        self._disabled: set[tuple[str, str]] = set()
        self._formulas = Formulas(self, self._begin_formula, self._end_formula)
        self._is_updating = False
        self._nodes: dict[tuple[str | None, str], _OpNode] = {}
        self._calls: Counter[tuple[int, Direction, int]] = Counter()

    def ignore_compile_internals(self) -> bool:  # type: ignore[override]
        """Lets compiled functions run compiled, unless they are to be taken apart."""
        return not self._options.allow_decompile

    def use(self, options: RecordOptions) -> None:
        """Goes on with other options; called between steps."""
        self._options = options
        self._nodes.clear()

    def updating(self, *, active: bool) -> None:
        """Tells that operators now belong to the optimizer, or no longer do."""
        self._is_updating = active

    def new_step(self) -> None:
        """Forgets call counters and what may be shared; to be called before the recorder ends a step."""
        self._calls.clear()
        self.contents.new_step()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Runs the operator unchanged and records it."""
        kwargs = kwargs or {}
        operator = operator_of(func)
        if operator.is_bookkeeping:
            return func(*args, **kwargs)
        call = self._quietly("inputs", operator, self._before, operator, args, kwargs)
        try:
            result = func(*args, **kwargs)
        except BaseException as error:
            self._quietly("error", operator, self._failed, call, error)
            raise
        if self.tracer is not None:
            self.tracer.follow_layout(func, args, kwargs, result)
        self._quietly("outputs", operator, self._after, call, result)
        return result

    def _quietly(self, place: str, operator: Operator, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function of ours; where it fails for an operator it is reported and not tried again."""
        if self._disabled and (place, operator.name) in self._disabled:
            return None
        try:
            return function(*args)
        except Exception as error:  # noqa: BLE001 - law 6: a recorder never raises into the user's step
            self._disabled.add((place, operator.name))
            message = f"recording the {place} of {operator.name} failed: {type(error).__name__}: {error}"
            self._recorder.event("error", message)
            return None

    def _before(self, operator: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _OpCall:
        return self._begin(operator, operands_of(operator, args, kwargs))

    def _after(self, call: _OpCall | None, result: Any) -> None:
        if call is not None:
            outputs = outputs_of(result)
            self._end(call, outputs)
            self._formulas.ran(call.operator, [tensor for _, tensor in outputs])

    def _failed(self, call: _OpCall | None, error: BaseException) -> None:
        if call is not None:
            text = str(error).strip().partition("\n")[0][:200]
            self._recorder.event("error", f"the operator raised {type(error).__name__}: {text}", call.node.path)

    def _begin_formula(self, operator: Operator, operands: Operands) -> tuple[Operator, _OpCall | None]:
        return operator, self._quietly("inputs", operator, self._begin, operator, operands)

    def _end_formula(self, under_way: tuple[Operator, _OpCall | None], gradients: list[torch.Tensor]) -> None:
        operator, call = under_way
        if call is not None:
            outputs = [(str(i), gradient) for i, gradient in enumerate(gradients)]
            self._quietly("outputs", operator, self._end, call, outputs)

    def _begin(self, operator: Operator, operands: Operands) -> _OpCall:
        path, direction, micro_step = self._place()
        node = self._nodes.get((path, operator.name)) or self._make_node(path, operator, direction)
        call = _OpCall(operator, operands, node, direction, micro_step)
        if node.what and (self._options.gradients or direction is not Direction.BACKWARD):
            call.sites = self._next_call(node, direction, micro_step)
            if operands.values:
                self._record_values(call, call.sites)
            for name, tensor in operands.tensors:
                if name not in operator.out:
                    self._record_input(call, call.sites, name, tensor)
        return call

    def _next_call(self, node: _OpNode, direction: Direction, micro_step: int) -> _Sites:
        key = (node.number, direction, micro_step)
        number = self._calls[key]
        self._calls[key] = number + 1
        calls = node.calls[direction]
        if number == len(calls):
            calls.append(_Sites(number))
        return calls[number]

    def _end(self, call: _OpCall, outputs: list[tuple[str, torch.Tensor]]) -> None:
        self.contents.ran(call.operator, call.operands.tensors, [tensor for _, tensor in outputs])
        known = call.sites
        if known is None:
            if self.tracer is not None:
                self.tracer.follow(call.operator, call.operands.tensors, outputs)
            return
        if not outputs:  # such as _foreach_add_: what it wrote is its result
            outputs = [(n, t) for n, t in call.operands.tensors if n.partition(".")[0] in call.operator.mutated]
        sites = [(self._site(call, known, Role.OUTPUT, name), tensor) for name, tensor in outputs]
        if self.tracer is not None:
            self.tracer.seen_operator(call.operator, call.inputs, sites, call.micro_step)
        if self._options.outputs:
            for site, tensor in sites:
                self._observe(call, site, tensor, pending=call.operator.is_collective)

    def _place(self) -> tuple[str | None, Direction, int]:
        if self._is_updating:
            return OPTIMIZER, Direction.UPDATE, self._recorder.micro_step
        place = self._attribution.place()
        micro_step = self._recorder.micro_step if place.micro_step is None else place.micro_step
        return place.path, place.direction, micro_step

    def _make_node(self, path: str | None, operator: Operator, direction: Direction) -> _OpNode:
        is_outside = path is None or (path == OPTIMIZER and direction is Direction.UPDATE)
        full = f"{OUTSIDE if path is None else path}/{operator.name}"
        if is_in_compiled_code():
            altered = self._options.allow_decompile
            message = "a compiled function ran uncompiled" if altered else "runs compiled: not all operators are seen"
            self._recorder.event("altered" if altered else "gap", message, full)
        api = "" if direction is Direction.BACKWARD else python_api()
        number = self._recorder.node(full, NodeKind.OP, operator.name, None if is_outside else path, api)
        node = self._nodes[path, operator.name] = _OpNode(number, full, self._recorder.wants(number))
        return node

    def _site(self, call: _OpCall, known: _Sites, role: Role, argument: str) -> int:
        sites = known.of_role[role]
        site = sites.get(argument)
        if site is None:
            stack = python_stack() if self._options.stacks else None
            site = self._recorder.site(call.node.number, call.direction, role, argument, known.number, stack)
            sites[argument] = site
        return site

    def _record_values(self, call: _OpCall, known: _Sites) -> None:
        for name, value in call.operands.values:
            if type(value) in _UNCHANGEABLE:
                typed = (value, type(value))
                if known.values.get(name) == typed:
                    continue
                known.values[name] = typed
            fact = f"{call.direction.value}[{known.number}].{name}"
            self._recorder.fact(call.node.number, "argument", fact, describe_value(value))

    def _record_input(self, call: _OpCall, known: _Sites, name: str, tensor: torch.Tensor) -> None:
        site = self._site(call, known, Role.INPUT, name)
        call.inputs.append((site, tensor))
        if self.tracer is not None:
            self.tracer.seen_operand(site, tensor, call.micro_step)
        if self._options.inputs:
            self._observe(call, site, tensor)

    def _observe(self, call: _OpCall, site: int, tensor: torch.Tensor, *, pending: bool = False) -> None:
        what = call.node.what
        content = Content(Status.UNSUPPORTED) if pending else self.contents.look(tensor, what)
        if content.status is not None:
            self._record_unreadable(call, site, tensor, content.status)
            return
        layouts = self.layouts
        placed = tensor if layouts is None else layouts.placed(tensor, layouts.at_site(site, tensor))
        seq = self._recorder.observe(
            site, placed, what=what, micro_step=call.micro_step, share=content.seq, reshaped=content.is_reshaped
        )
        if content.seq is None and seq >= 0:
            content.keep(seq)

    def _record_unreadable(self, call: _OpCall, site: int, tensor: torch.Tensor, status: Status) -> None:
        if status is Status.UNSUPPORTED:
            self._recorder.event("gap", "a collective's result is not known before it is waited for", call.node.path)
        self._recorder.observe(site, tensor, what=call.node.what, micro_step=call.micro_step, status=status)
