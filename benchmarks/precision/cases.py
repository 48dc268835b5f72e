"""Draws what a run of PrecisionBench tries: which fault, in which model, at which layer, from which seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.precision.architectures import ARCHITECTURES, Architecture
from benchmarks.precision.clean import CLEAN, CleanKind
from benchmarks.precision.faults import FAULTS, Fault

#: What is recorded in each mode.
MODES: dict[str, str] = {"sketch": "statistics,sketch", "tensor": "statistics,tensors"}


@dataclass(frozen=True, slots=True)
class FaultCase:
    """One seeded fault."""

    fault: Fault
    architecture: Architecture
    layer: int
    seed: int
    mode: str

    @property
    def places(self) -> tuple[str, ...]:
        """Gives the module paths one of which must be named; empty when any will do."""
        place = self.fault.place
        if place.part == "*":
            return ()
        paths = [self.architecture.path(place.part, self.layer) if place.part else ""]
        if place.alias:
            paths.append(self.architecture.path(place.alias, self.layer))
        return tuple(paths)

    def expectation(self) -> dict[str, object]:
        """Gives the row of the table of expectations."""
        place = self.fault.place
        return {
            "kind": self.fault.kind,
            "architecture": self.architecture.name,
            "layer": self.layer,
            "seed": self.seed,
            "mode": self.mode,
            "nodes": list(self.places),
            "direction": place.direction,
            "roles": list(place.roles),
            "own_code": place.own_code,
            "step": place.step,
            "named": list(place.named),
        }


@dataclass(frozen=True, slots=True)
class CleanCase:
    """One pair that differs by rounding only."""

    clean: CleanKind
    architecture: Architecture
    seed: int
    mode: str


def fault_cases(
    draw: int, *, seeds: int, architectures: Sequence[str], modes: Sequence[str], kinds: Sequence[str] = ()
) -> Iterator[FaultCase]:
    """Draws a layer and a seed for every fault, architecture and repetition; each is tried in every mode."""
    for name in architectures:
        architecture = ARCHITECTURES[name]
        generator = random.Random(f"{draw} {name}")
        model_seeds = [generator.randrange(1, 10**6) for _ in range(seeds)]
        for seed in model_seeds:
            for fault in FAULTS:
                layer = generator.randrange(architecture.layers)
                if fault.fits(architecture) and (not kinds or fault.kind in kinds):
                    yield from (FaultCase(fault, architecture, layer, seed, mode) for mode in modes)


def clean_cases(
    draw: int, *, architectures: Sequence[str], modes: Sequence[str], kinds: Sequence[str] = (), slow: bool = True
) -> Iterator[CleanCase]:
    """Draws a seed for every clean kind on every architecture that it fits."""
    generator = random.Random(f"{draw} clean")
    for clean in CLEAN:
        for name in clean.architectures:
            seed = generator.randrange(1, 10**6)
            if name in architectures and (not kinds or clean.kind in kinds) and (slow or not clean.slow):
                yield from (CleanCase(clean, ARCHITECTURES[name], seed, mode) for mode in modes)
