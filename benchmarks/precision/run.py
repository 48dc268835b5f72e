"""Runs PrecisionBench: ``python -m benchmarks.precision.run --quick``, or without ``--quick`` in full."""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import groupby
from multiprocessing import get_context
from pathlib import Path

from tqdm import tqdm

from benchmarks.precision import report
from benchmarks.precision.architectures import ARCHITECTURES
from benchmarks.precision.cases import MODES, CleanCase, FaultCase, clean_cases, fault_cases
from benchmarks.precision.scorer import Bench, Outcome

#: The sample of ``--quick``: every fault and clean kind once, in sketch mode, on one architecture in turn.
QUICK_DRAW = 20261201


def quick_cases(draw: int = QUICK_DRAW) -> tuple[list[FaultCase], list[CleanCase]]:
    """Gives each kind of fault and of clean pair once, the architectures taking turns."""
    names = list(ARCHITECTURES)
    faults: dict[str, list[FaultCase]] = {}
    for case in fault_cases(draw, seeds=1, architectures=names, modes=["sketch"]):
        faults.setdefault(case.fault.kind, []).append(case)
    clean: dict[str, list[CleanCase]] = {}
    for pair in clean_cases(draw, architectures=names, modes=["sketch"], slow=False):
        clean.setdefault(pair.clean.kind, []).append(pair)
    return _in_turns(list(faults.values())), _in_turns(list(clean.values()))


def _in_turns(groups: Sequence[Sequence]) -> list:  # type: ignore[type-arg]
    return [group[i % len(group)] for i, group in enumerate(groups)]


def run_batch(cases: Sequence[FaultCase | CleanCase]) -> list[Outcome]:
    """Runs cases that share reference runs, in a folder of their own that is removed afterwards."""
    import torch

    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(prefix="precision-bench-"))
    try:
        bench = Bench(folder)
        return [_attempt(bench, case) for case in cases]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _attempt(bench: Bench, case: FaultCase | CleanCase) -> Outcome:
    group, kind, layer = (
        ("fault", case.fault.kind, case.layer) if isinstance(case, FaultCase) else ("clean", case.clean.kind, -1)
    )
    try:
        return bench.fault(case) if isinstance(case, FaultCase) else bench.clean(case)
    except Exception as error:  # noqa: BLE001  # a case that cannot be run is a miss, and the others still count
        print(traceback.format_exc(), file=sys.stderr)
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        return Outcome(
            group, kind, case.architecture.name, case.seed, case.mode,
            passed=False, verdict="failed", judged=float("nan"), layer=layer, why=why,
        )  # fmt: skip


def _batches(faults: Sequence[FaultCase], clean: Sequence[CleanCase]) -> Iterator[list[FaultCase | CleanCase]]:
    for _, members in groupby(faults, key=lambda case: (case.architecture.name, case.seed)):
        yield list(members)
    for _, pairs in groupby(clean, key=lambda case: case.clean.kind):
        yield list(pairs)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the bench and returns 0 when at least 95 % of the faults and all clean pairs pass."""
    arguments = _arguments(argv)
    os.environ["HF_HUB_OFFLINE"] = "1"
    draw = arguments.draw if arguments.draw is not None else QUICK_DRAW if arguments.quick else secrets.randbelow(10**9)
    if arguments.quick:
        faults, clean = quick_cases(draw)
    else:
        chosen = {"architectures": arguments.architectures, "modes": arguments.modes, "kinds": arguments.kinds}
        faults = [] if arguments.only == "clean" else list(fault_cases(draw, seeds=arguments.seeds, **chosen))
        pairs = [] if arguments.only == "faults" else clean_cases(draw, slow=not arguments.no_compile, **chosen)
        clean = list(pairs)
    arguments.out.mkdir(parents=True, exist_ok=True)
    expected = arguments.out / "expected.json"
    expected.write_text(json.dumps([case.expectation() for case in faults], indent=1) + "\n")
    outcomes = _run(list(_batches(faults, clean)), arguments.jobs)
    how = f"{len(faults)} faults and {len(clean)} clean pairs, drawn with `--draw {draw}`."
    for path in report.write(outcomes, arguments.out, how=how):
        print(path)
    if arguments.page is not None:
        arguments.page.write_text(report.markdown(outcomes, how=how))
    return _conclude(outcomes)


def _run(batches: Sequence[list[FaultCase | CleanCase]], jobs: int) -> list[Outcome]:
    outcomes: list[Outcome] = []
    with tqdm(total=sum(map(len, batches)), unit="case", disable=None) as progress:
        if jobs == 1:
            for batch in batches:
                outcomes += run_batch(batch)
                progress.update(len(batch))
            return outcomes
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            for done in pool.map(run_batch, batches):
                outcomes += done
                progress.update(len(done))
    return outcomes


def _conclude(outcomes: Sequence[Outcome]) -> int:
    code = 0
    for group, least in (("fault", 0.95), ("clean", 1.0)):
        passed, total = report.score(outcome for outcome in outcomes if outcome.group == group)
        if total:
            print(f"{group}: {passed} of {total} ({passed / total:.1%})")
            code |= passed < least * total
    for outcome in outcomes:
        if not outcome.passed:
            print(f"  missed {outcome.place}: {outcome.verdict}; {outcome.found}; {outcome.why}")
    return int(code)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision.run", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fixed sample: each kind once")
    parser.add_argument("--draw", type=int, help="the number that layers and seeds are drawn with")
    parser.add_argument("--seeds", type=int, default=5, help="repetitions of each fault on each architecture")
    parser.add_argument("--architectures", nargs="+", default=list(ARCHITECTURES), choices=list(ARCHITECTURES))
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=list(MODES))
    parser.add_argument("--kinds", nargs="+", default=[], help="only these kinds of fault or clean pair")
    parser.add_argument("--only", choices=["faults", "clean"], help="only one of both groups")
    parser.add_argument("--no-compile", action="store_true", help="leave out pairs that need a C++ compiler")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", type=Path, default=Path("build/precision-bench"), help="folder of the results")
    parser.add_argument("--page", type=Path, help="write the page here too: docs/precision-bench.md")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
