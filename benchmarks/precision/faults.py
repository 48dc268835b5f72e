"""The faults of PrecisionBench: what each one edits, and where a tool must say that it is.

``EXPECTED`` is the table of expectations. It is filled from this file alone, before anything is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from torch import nn

from benchmarks.precision import edits
from benchmarks.precision.architectures import Architecture

if TYPE_CHECKING:
    from benchmarks.precision.training import Plan


@dataclass(frozen=True, slots=True)
class Place:
    """Where the first source must be: a part of the architecture, and which of its tensors.

    ``part`` "" is the model itself, "*" any module (a fault of the loop touches all of them alike).
    With ``own_code`` the fault sits between the children of a container: the report must name the container, be it
    by its own result or by the input of a child that came from its code.
    """

    part: str
    direction: str
    roles: tuple[str, ...]
    own_code: bool = False
    step: int = 0
    #: Also accepted: another module that holds the very same tensor.
    alias: str = ""
    #: Words one of which the report must hold, for faults that no module has.
    named: tuple[str, ...] = ()

    def __str__(self) -> str:
        where = {"": "the model", "*": "any module"}.get(self.part, f"`{self.part}`")
        what = f"{self.direction}/{' or '.join(self.roles)}"
        notes = [
            "own code" if self.own_code else "",
            f"step {self.step}" if self.step else "",
            f"or `{self.alias}`" if self.alias else "",
            f"must say {' or '.join(self.named)}" if self.named else "",
        ]
        return ", ".join([f"{where} {what}", *(n for n in notes if n)])


Edit = Callable[[nn.Module, Architecture, int, int], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """One kind of fault. ``edit`` changes the candidate's model; ``plan`` changes how it is trained."""

    kind: str
    summary: str
    place: Place
    #: Which parts the architecture must have.
    needs: tuple[str, ...]
    edit: Edit | None = None
    #: What both sides need around the fault.
    both: Callable[[Plan], Plan] | None = None
    plan: Callable[[Plan], Plan] | None = None
    #: What proves that the fault acts: "output", "gradient", "state", "input", "loss" or "update".
    acts_on: str = "output"
    #: The part that proves it, where it is not the one that must be named.
    watch: str = ""
    level: str = "module"
    #: Only these architectures, when not empty.
    only: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[Callable[[str], Fault], tuple[str]]:
        """Travels to other processes by its name: edits are functions made on the spot."""
        return fault_named, (self.kind,)

    def fits(self, architecture: Architecture) -> bool:
        """Tells whether the architecture has what the fault needs."""
        if self.only and architecture.name not in self.only:
            return False
        return all(architecture.has(part) for part in self.needs)

    def plans(self, plan: Plan) -> tuple[Plan, Plan]:
        """Gives the candidate's and the reference's plan."""
        reference = self.both(plan) if self.both else plan
        return (self.plan(reference) if self.plan else reference), reference


def _module(model: nn.Module, architecture: Architecture, part: str, layer: int) -> nn.Module:
    return model.get_submodule(architecture.path(part, layer))


def _on(part: str, edit: Callable[..., object], *arguments: object, seeded: bool = False) -> Edit:
    """Makes an edit of one part of the drawn layer."""

    def apply(model: nn.Module, architecture: Architecture, layer: int, seed: int) -> None:
        more = (seed,) if seeded else ()
        edit(_module(model, architecture, part, layer), *arguments, *more)

    return apply


def _swap_query_key(model: nn.Module, architecture: Architecture, layer: int, seed: int) -> None:
    del seed
    names = (architecture.path(part, layer).rpartition(".")[2] for part in ("query", "key"))
    edits.swap_children(_module(model, architecture, "attention", layer), *names)


def _empty_mask(model: nn.Module, architecture: Architecture, layer: int, seed: int) -> None:
    edits.empty_mask(_module(model, architecture, "attention", layer), 2 + seed % 8)


def _shift_positions(model: nn.Module, architecture: Architecture, layer: int, seed: int) -> None:
    del architecture, layer, seed
    inner = model.place
    model.place = lambda x: inner(x, first=1)  # type: ignore[operator,assignment]


def _extra_call(model: nn.Module, architecture: Architecture, layer: int, seed: int) -> None:
    """Calls a norm once more from inside an MLP, its result unused, and adds noise to the MLP's output."""
    norm = _module(model, architecture, "norm", layer)
    edits.before_forward(_module(model, architecture, "mlp", layer), norm)
    edits.add_noise(_module(model, architecture, "mlp", layer), 1e-3, seed)


def _extra_operator(model: nn.Module, architecture: Architecture, layer: int, seed: int) -> None:
    """Negates twice inside an MLP (exact, so no fault) and adds noise to its last linear."""
    edits.edit_output(_module(model, architecture, "activation", layer), lambda x: x.neg().neg())
    edits.add_noise(_module(model, architecture, "mlp_out", layer), 1e-3, seed)


def _accumulating(plan: Plan) -> Plan:
    return replace(plan, accumulation=2)


_OUT = ("output",)
_BACK = ("output", "gradient")


def _noise(strength: float) -> Fault:
    return Fault(
        f"mlp-noise-{strength:.0e}".replace("e-0", "e-"),
        f"normal noise of {strength:g} on the output of an MLP",
        Place("mlp", "forward", _OUT, own_code=True),
        ("mlp",),
        _on("mlp", edits.add_noise, strength, seeded=True),
    )


FAULTS: tuple[Fault, ...] = (
    _noise(1e-4),
    _noise(1e-3),
    _noise(1e-2),
    Fault(
        "scaled-residual", "the residual branch of a block times 0.9",
        Place("block", "forward", _OUT, own_code=True), ("block",), _on("block", edits.scale_residual, 0.9),
    ),
    Fault(
        "wrong-eps", "the eps of a norm 100 times too large",
        Place("norm", "forward", _OUT), ("norm",), _on("norm", edits.wrong_eps, 100.0),
    ),
    Fault(
        "swapped-query-key", "an attention uses its key as query and its query as key",
        Place("attention", "forward", ("output", "input"), own_code=True), ("swappable",), _swap_query_key,
    ),
    Fault(
        "wrong-attention-scale", "the scores of an attention scaled by 1/sqrt(d) twice too large",
        Place("attention", "forward", ("output", "input"), own_code=True), ("attention",),
        _on("attention", edits.wrong_scale, 2.0),
    ),
    Fault(
        "dropped-bias", "a linear layer forgets its bias",
        Place("biased", "forward", _OUT), ("biased",), _on("biased", edits.linear_without_bias),
    ),
    Fault(
        "bf16-island", "a linear layer computed in bf16 and cast back, in an fp32 run",
        Place("mlp_out", "forward", _OUT), ("mlp_out",), _on("mlp_out", edits.linear_in_bf16),
    ),
    Fault(
        "empty-mask", "one token may attend to nothing: softmax gives NaN",
        Place("attention", "forward", ("output", "input"), own_code=True), ("attention",), _empty_mask,
    ),
    Fault(
        "wrong-weight", "a tenth of the rows of a weight are wrong after load",
        Place("mlp_in", "forward", ("parameter",)), ("mlp_in",),
        _on("mlp_in", edits.wrong_weight, seeded=True), acts_on="state",
    ),
    Fault(
        "stale-buffer", "a buffer keeps the values of another config",
        Place("buffered", "forward", ("buffer",)), ("buffered",), _on("buffered", edits.stale_buffer), acts_on="state",
    ),
    Fault(
        "doubled-gradient", "a custom autograd function in a linear layer doubles what flows back",
        Place("mlp_out", "backward", _BACK), ("mlp_out",), _on("mlp_out", edits.scale_gradient, 2.0),
        acts_on="gradient",
    ),
    Fault(
        "clipped-activation", "an activation clamped so that one element in fifty is cut",
        Place("activation", "forward", _OUT), ("activation",), _on("activation", edits.clip_output, 0.02),
    ),
    Fault(
        "transposed-weight", "a square weight used transposed",
        Place("square", "forward", _OUT), ("square",), _on("square", edits.linear_transposed),
    ),
    Fault(
        "wrong-dropout-seed", "a dropout draws its mask from another seed",
        Place("dropout", "forward", _OUT), ("dropout",), _on("dropout", edits.own_dropout_seed, seeded=True),
    ),
    Fault(
        "shifted-positions", "positions start at 1 in the model's own code",
        Place("", "forward", ("input",), own_code=True), ("positioned",), _shift_positions, acts_on="input",
        watch="positioned",
    ),
    Fault(
        "shifted-position-ids", "the loop feeds position ids that start at 1",
        Place("", "forward", ("input",)), ("embedding",), plan=lambda p: replace(p, first_position=1),
        acts_on="input", only=("llama", "qwen2"),
    ),
    Fault(
        "extra-call", "a norm is called once more (harmless); noise of 1e-3 on an MLP",
        Place("mlp", "forward", _OUT, own_code=True), ("mlp", "norm"), _extra_call,
    ),
    Fault(
        "extra-operator", "two more operators in an activation (exact); noise of 1e-3 on a linear layer",
        Place("mlp_out", "forward", _OUT), ("mlp_out", "activation"), _extra_operator, level="mix",
    ),
    Fault(
        "missing-zero-grad", "the loop never clears gradients",
        Place("*", "update", ("gradient",), step=1, named=("zero_grad", "accumulat", "previous step")), (),
        plan=lambda p: replace(p, zero_grad=False), acts_on="update",
    ),
    Fault(
        "missing-loss-scale", "two micro-batches, the loss not divided by two",
        Place("", "backward", ("input",), alias="head", named=("2 times", "factor of 2")), ("head",),
        both=_accumulating, plan=lambda p: replace(p, scale_loss=False), acts_on="loss",
    ),
    Fault(
        "missing-clipping", "the loop forgets to clip gradients",
        Place("*", "update", ("gradient",)), (),
        both=lambda p: replace(p, clip=0.1), plan=lambda p: replace(p, clip=0.0), acts_on="update",
    ),
    Fault(
        "wrong-weight-decay", "weight decay of 10 instead of 0.01 in the optimizer",
        Place("*", "forward", ("parameter",), step=1), (),
        plan=lambda p: replace(p, weight_decay=10.0), acts_on="update",
    ),
)  # fmt: skip


def fault_named(kind: str) -> Fault:
    """Finds a fault."""
    return next(fault for fault in FAULTS if fault.kind == kind)


EXPECTED: dict[str, str] = {fault.kind: str(fault.place) for fault in FAULTS}
