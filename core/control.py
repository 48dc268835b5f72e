"""Changes the options of a recording while it runs, on all ranks at the same step, without a word between them.

Everything happens in files of the run directory, under ``control/``:

* ``msprobe ctl`` writes a request, ``request-000001.json``, and waits for the answer.
* Rank 0 checks it, writes ``answer-000001.json``, and publishes in ``agreed.json`` what holds from which step on. The
  step lies so far ahead that the other ranks will have read it; a rank that is past it all the same says so.
* Every rank looks at the time stamp of ``agreed.json`` now and then, in a thread of its own.

With a config file to watch, an edit of it is a request too. What is wrong with a request is told to who made it, and
as an event with file and line; the options stay as they are.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from msprobe.core.errors import ConfigError, MsprobeError
from msprobe.core.options import RecordOptions
from msprobe.core.run.files import create_whole

FOLDER: Final = "control"
AGREED: Final = "agreed.json"
#: Seconds between looks; how many looks, and steps at least, a change is announced ahead.
INTERVAL: Final = 0.5
LOOKS_AHEAD: Final = 5
STEPS_AHEAD: Final = 2
#: What cannot change while recording.
FIXED: Final = frozenset(
    {"preset", "start_step", "queue_bytes", "alerts", "on_alert", "control", "mesh", "context_parallel", "trace"}
)
#: File systems may round time stamps to so many seconds: until then a file may change without a new stamp.
_COARSEST_STAMP: Final = 2.0
#: An agreement that is so many seconds older than this process was for a process before.
_OLD: Final = 300.0
_MOST_REQUESTS: Final = 999_999


@dataclass(frozen=True, slots=True)
class Agreement:
    """What holds from a step on: options that differ from those at the start, and whether anything is recorded."""

    generation: int = 0
    apply_at: int = 0
    paused: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)


class Control:
    """Looks for changes in a thread of its own; ``pending`` is the agreement that waits for its step.

    Args:
        run: The run directory.
        rank: Rank 0 answers requests and publishes.
        options: The options at the start.
        step: Gives the present step.
        note: Takes the text of an event.
        refuse: Raises ``ConfigError`` for options that this recording cannot change to.
    """

    def __init__(
        self,
        run: Path,
        rank: int,
        options: RecordOptions,
        *,
        step: Callable[[], int],
        note: Callable[[str], None],
        refuse: Callable[[RecordOptions], None] = lambda options: None,
    ) -> None:
        self.pending: Agreement | None = None
        self._folder = run / FOLDER
        self._rank, self._options = rank, options
        self._step, self._note, self._refuse = step, note, refuse
        self._agreed = Agreement()
        self._began = time.time()
        self._answered = 0
        self._stamps: dict[Path, int] = {}
        self._pace = _Pace(step)
        self._file = _WatchedFile(Path(options.control)) if _is_file(options) else None
        self._leave_old_requests()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name="msprobe-control", daemon=True)
        self._thread.start()

    def due(self, step: int) -> Agreement | None:
        """Gives the agreement that is to be applied before ``step``, once."""
        pending = self.pending
        if pending is None or step < pending.apply_at:
            return None
        self.pending = None
        late = "" if step == pending.apply_at else f", too late: it was to be at step {pending.apply_at}"
        self._note(f"change {pending.generation} applies from step {step} on{late}: {described(pending)}")
        return pending

    def applied(self, agreement: Agreement) -> RecordOptions:
        """Gives the options under an agreement."""
        return self._options.updated(**agreement.options)

    def close(self) -> None:
        """Stops looking."""
        self._stop.set()
        self._thread.join(5.0)

    def _work(self) -> None:
        while not self._stop.wait(INTERVAL):
            try:
                self._pace.tick()
                if self._rank == 0:
                    self._read_requests()
                    self._read_file()
                else:
                    self._read_agreement()
            except Exception as error:  # noqa: BLE001 -- whatever the file system does, recording goes on
                self._note(f"control: {type(error).__name__}: {error}")

    # -- rank 0

    def _leave_old_requests(self) -> None:
        """Requests, and what was agreed, from before this start were for the process before."""
        with suppress(OSError):
            self._answered = max(map(_number, self._folder.glob("request-*.json")), default=0)
            old = _read_agreement(self._folder / AGREED)
            if old is not None and self._rank == 0:
                self._agreed = Agreement(old.generation + 1)
                _publish(self._folder / AGREED, self._agreed)

    def _read_requests(self) -> None:
        if not self._changed(self._folder):
            return
        for path in sorted(self._folder.glob("request-*.json")):
            if _number(path) > self._answered:
                self._answered = _number(path)
                self._answer(path)

    def _answer(self, path: Path) -> None:
        try:
            request = json.loads(path.read_text(encoding="utf-8"))
            agreed = self._agree(request.get("options", {}), paused=request.get("paused"), at=request.get("at"))
            answer: dict[str, Any] = {
                "apply_at": agreed.apply_at,
                "generation": agreed.generation,
                "step": self._step(),
            }
        except (MsprobeError, ValueError, AttributeError) as error:
            answer = {"error": str(error)}
            self._note(f"a request was refused: {error}")
        create_whole(path.with_name(path.name.replace("request", "answer")), json.dumps(answer))

    def _read_file(self) -> None:
        if self._file is None or not self._changed(self._file.path):
            return
        try:
            changes = self._file.changes()
            if changes:
                self._agree(changes)
        except MsprobeError as error:
            self._note(f"the edit was refused, the old options stay: {error}")

    def _agree(self, changes: Mapping[str, Any], *, paused: bool | None = None, at: int | None = None) -> Agreement:
        """Checks changes and publishes them.

        Raises:
            ConfigError: They cannot be.
        """
        fixed = FIXED & changes.keys()
        if fixed:
            raise ConfigError(f"option {min(fixed)!r} cannot change while recording.")
        now = self._step()
        if at is not None and at <= now:
            raise ConfigError(f"step {at} has begun; the training is at step {now}.")
        options = {**self._agreed.options, **changes}
        self._refuse(self._options.updated(**options))
        self._agreed = Agreement(
            self._agreed.generation + 1,
            now + self._pace.steps_ahead() if at is None else at,
            self._agreed.paused if paused is None else paused,
            options,
        )
        _publish(self._folder / AGREED, self._agreed)
        self.pending = self._agreed
        return self._agreed

    # -- the others

    def _read_agreement(self) -> None:
        path = self._folder / AGREED
        if not self._changed(path):
            return
        found = _read_agreement(path)
        old = self._stamps[path] / 1e9 < self._began - _OLD
        if found is not None and not old and found.generation > self._agreed.generation:
            self._agreed = self.pending = found

    def _changed(self, path: Path) -> bool:
        """Tells whether a file or folder is not as it was at the last look."""
        try:
            stamp = path.stat().st_mtime_ns
        except OSError:
            return False
        fresh = time.time() - stamp / 1e9 < _COARSEST_STAMP
        if self._stamps.get(path) == stamp and not fresh:
            return False
        self._stamps[path] = stamp
        return True


class _Pace:
    """How many steps the training makes in the time that a change takes to reach all ranks."""

    def __init__(self, step: Callable[[], int]) -> None:
        self._step = step
        self._last = (time.monotonic(), step())
        self._rate = 0.0

    def tick(self) -> None:
        now, step = time.monotonic(), self._step()
        seconds, steps = now - self._last[0], step - self._last[1]
        self._rate = max(self._rate * 0.8, steps / seconds if seconds > 0 else 0.0)
        self._last = (now, step)

    def steps_ahead(self) -> int:
        return max(STEPS_AHEAD, math.ceil(self._rate * INTERVAL * LOOKS_AHEAD))


class _WatchedFile:
    """A config file, and what it said when it was last right."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._values = self._read()

    def changes(self) -> dict[str, Any]:
        """Gives the options that an edit has changed; one that was taken out goes back to its default.

        Raises:
            ConfigError: Something in the file is wrong.
        """
        before, values = self._values, self._read()
        plain = {f.name: _written(getattr(RecordOptions(), f.name)) for f in fields(RecordOptions)}
        changed = {name: value for name, value in values.items() if before.get(name, self) != value}
        self._values = values
        return changed | {name: plain[name] for name in before.keys() - values.keys()}

    def _read(self) -> dict[str, Any]:
        from msprobe.core.config import load_values

        return load_values(self.path)


def request(run: Path, content: Mapping[str, Any], *, seconds: float) -> dict[str, Any]:
    """Makes a request of a run and waits for the answer; gives it.

    Raises:
        ConfigError: Nobody answers, or the request was refused.
    """
    folder = run / FOLDER
    folder.mkdir(exist_ok=True)
    number = max(map(_number, folder.glob("request-*.json")), default=0)
    while not create_whole(folder / f"request-{number + 1:06d}.json", json.dumps(content)):
        number += 1
        if number >= _MOST_REQUESTS:
            raise ConfigError(f"{folder}: is full.")
    path = folder / f"answer-{number + 1:06d}.json"
    end = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > end:
            raise ConfigError(
                f"{run}: nobody answers. The recording has ended, its rank 0 is busy, or it was started without "
                "control (msprobe.monitor has it; msprobe.record(..., control=True))."
            )
        time.sleep(0.1)
    answer: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if "error" in answer:
        raise ConfigError(answer["error"])
    return answer


def described(agreement: Agreement) -> str:
    """Says in words what an agreement asks for."""
    words = [f"{name}={value}" for name, value in agreement.options.items()]
    return ", ".join([("stopped" if agreement.paused else "recording"), *words])


def _publish(path: Path, agreement: Agreement) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}-{os.getpid()}")
    content = {f.name: getattr(agreement, f.name) for f in fields(Agreement)}
    aside.write_text(json.dumps(content, default=_written), encoding="utf-8")
    aside.replace(path)


def _read_agreement(path: Path) -> Agreement | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Agreement(**{f.name: content[f.name] for f in fields(Agreement)})
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _written(value: Any) -> Any:
    return sorted(value) if isinstance(value, set | frozenset) else value


def _number(path: Path) -> int:
    digits = path.stem.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else 0


def _is_file(options: RecordOptions) -> bool:
    return options.control not in ("", "on")
