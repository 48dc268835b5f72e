"""What changes between the steps of a recording: options that were asked for, and a closer look after an alert."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from msprobe.core.alerts.watcher import watcher_of
from msprobe.core.control import Control
from msprobe.core.errors import AlertError, ConfigError
from msprobe.core.records import WHAT
from msprobe.core.run.batch import Event

if TYPE_CHECKING:
    from pathlib import Path

    from msprobe.core.alerts.findings import Alert
    from msprobe.core.alerts.watcher import Watcher
    from msprobe.core.options import RecordOptions
    from msprobe.core.recorder import Recorder


class Steering:
    """Gives the options for the step that begins, when they are others than before."""

    def __init__(self, options: RecordOptions) -> None:
        #: Set once there is one; the run's writer, and so the rank, may be known before.
        self.recorder: Recorder | None = None
        self._early: list[tuple[str, str]] = []
        self._options = options
        self._control: Control | None = None
        self._dumps_left = options.dump_on_alert
        self._guilty: Alert | None = None
        self._stop: Alert | None = None
        self._looks_closer = False

    def stored(self) -> frozenset[str]:
        """Gives what the run must have columns for: with a config file to watch, whatever may be asked for later."""
        options = self._options
        if options.control not in ("", "on"):
            return frozenset(WHAT)
        later = {"statistics", "tensors"} if options.control or options.dump_on_alert else set()
        more = {"checksums", *later}
        return options.what.union(more, *(what for _, what in options.what_for))

    def begin(self, run: Path, rank: int) -> Watcher | None:
        """Starts to listen for changes, and gives what watches for alerts."""
        if self._options.control:
            self._control = Control(
                run,
                rank,
                self._options,
                step=lambda: self._options.start_step if self.recorder is None else self.recorder.step,
                note=lambda text: self._note("control", text),
                refuse=self._refuse,
            )
        watch = watcher_of(self._options, rank, [self._heard])
        if isinstance(watch, Event):
            self._note(watch.kind, watch.message)
            return None
        return watch

    def next_options(self, recorder: Recorder) -> RecordOptions | None:
        """Gives the options for the step that begins; None, and little work, when they are as before."""
        self.recorder = recorder
        control, guilty = self._control, self._guilty
        pending = control is not None and control.pending is not None
        if not (pending or guilty or self._looks_closer or self._early):
            return None
        while self._early:
            recorder.event(*self._early.pop(0))
        agreed = control.due(recorder.step) if control is not None else None
        if agreed is not None and control is not None:
            self._options, recorder.paused = control.applied(agreed), agreed.paused
        elif guilty is None and not self._looks_closer:
            return None
        self._looks_closer, self._guilty = False, None
        if guilty is None or recorder.paused:
            return self._options
        self._looks_closer = True
        recorder.event("dump", f"tensors of this node are saved because of an alert: {guilty}", guilty.node)
        return closer(self._options, guilty.node)

    def raise_if_asked(self) -> None:
        """Ends the training where an alert was to.

        Raises:
            AlertError: There was an alert, and ``stop_on_alert`` is on.
        """
        stop, self._stop = self._stop, None
        if stop is not None:
            raise AlertError(f"stop_on_alert: {stop}")

    def close(self) -> None:
        """Stops listening."""
        if self._control is not None:
            self._control.close()

    def _note(self, kind: str, text: str) -> None:
        if self.recorder is None:
            self._early.append((kind, text))
        else:
            self.recorder.event(kind, text)

    def _heard(self, alert: Alert) -> None:
        """Hears of an alert, in the writer's thread."""
        if self._options.stop_on_alert:
            self._stop = alert
        if self._dumps_left > 0 and self._guilty is None:
            self._dumps_left -= 1
            self._guilty = alert

    def _refuse(self, options: RecordOptions) -> None:
        """Refuses what the run has no columns for."""
        asked = options.what.union(*(what for _, what in options.what_for))
        missing = asked - self.stored()
        if missing:
            raise ConfigError(
                f"this run has no columns for {', '.join(sorted(missing))}. Start it with them, or with a config file "
                "and DYNAMIC_MONITOR=True."
            )
        if options.level != self._options.level:
            raise ConfigError("the level cannot change while recording.")


def closer(options: RecordOptions, path: str) -> RecordOptions:
    """Gives options that keep everything of one node, tensors too, whatever the schedule says."""
    pattern = "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)
    return replace(
        options,
        what_for=((pattern, options.what | {"statistics", "tensors"}), *options.what_for),
        targets=(*options.targets, pattern) if options.targets else (),
        steps=(),
        every=1,
        window=1,
        ranks=frozenset(),
        inputs=True,
        outputs=True,
        parameters=True,
        gradients=True,
        stacks=True,
    )
