"""``msprobe record -- python train.py``: runs a program so that its models are recorded, with no edit to it.

The program's Python processes start with our ``sitecustomize`` on PYTHONPATH, which acts once torch is imported. That
works through torchrun and other launchers too, for their children inherit the environment. No torch is imported here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.core.errors import RecordingError
from msprobe.core.options import RecordOptions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: What the program's processes are told, as JSON.
VARIABLE = "MSPROBE_LAUNCH"
#: Set by a process that records, so that programs it starts do not write into the same run.
ACTIVE_VARIABLE = "MSPROBE_LAUNCH_ACTIVE"

_STARTUP = Path(__file__).resolve().parent / "startup"
_SEED = 20
_SIGNAL_BASE = 128


def launch(command: Sequence[str], options: RecordOptions, out: Path, *, perturb: bool = False) -> int:
    """Runs a program, records its models into ``out``, and gives its exit code.

    With ``perturb`` a second run follows, with the inputs moved by one rounding, into ``<out>-perturbed``.

    Raises:
        RecordingError: The program cannot be started.
    """
    code = _run(command, _environment(options, out, seed=None))
    _report(out, code)
    if not perturb or code:
        return code
    twin = out.with_name(f"{out.name}-perturbed")
    code = _run(command, _environment(options, twin, seed=_SEED))
    _report(twin, code)
    return code


def read_instructions(environment: Mapping[str, str]) -> tuple[RecordOptions, Path, int | None] | None:
    """Gives options, run directory and perturbation seed as ``launch`` set them; None where it did not."""
    text = environment.get(VARIABLE)
    if not text:
        return None
    found: dict[str, Any] = json.loads(text)
    values = found["options"]
    values["steps"] = [tuple(pair) for pair in values["steps"]]
    return RecordOptions.create(**values), Path(found["out"]), found["perturb"]


def _environment(options: RecordOptions, out: Path, *, seed: int | None) -> dict[str, str]:
    instructions = {"options": asdict(options), "out": str(out.absolute()), "perturb": seed}
    environment = {name: value for name, value in os.environ.items() if name != ACTIVE_VARIABLE}
    environment[VARIABLE] = json.dumps(instructions, default=sorted)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_STARTUP), environment.get("PYTHONPATH"))))
    return environment


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    words = [sys.executable, *command] if command[0].endswith(".py") else list(command)
    try:
        process = subprocess.Popen(words, env=dict(environment))
    except OSError as error:
        raise RecordingError(f"cannot run {words[0]!r}: {error.strerror or error}.") from None
    while True:
        try:
            code = process.wait()
            break
        except KeyboardInterrupt:  # the program got it as well, and decides
            continue
    return code if code >= 0 else _SIGNAL_BASE - code


def _report(out: Path, code: int) -> None:
    if not (out / "run.json").is_file():
        sys.stderr.write(
            f"msprobe: nothing was recorded into {out} (exit code {code}): no process of the program called a model "
            "with parameters, or its Python cannot import msprobe or ignores PYTHONPATH.\n"
        )
