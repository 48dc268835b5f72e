"""The one place that keeps the recorder's failures out of the user's step."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Reporting(Protocol):
    """Has a place to report failures to."""

    failures: Failures


S = TypeVar("S", bound=Reporting)


class Failures:
    """Failures of hooks by place and module: each is reported once, and is not tried again for that module."""

    def __init__(self, report: Callable[[str, str], None]) -> None:
        self._report = report
        #: Place and subject of what failed; what has no subject is always tried again.
        self.disabled: set[tuple[str, str]] = set()

    def add(self, place: str, subject: str | None, error: BaseException) -> None:
        """Notes a failure and switches the place off for the subject."""
        if subject is not None:
            self.disabled.add((place, subject))
        self._report(f"recording of {place} failed here: {type(error).__name__}: {error}", subject or "")


def guarded(function: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R | None]:
    """Makes a method that never raises: a failure is reported once, by method and first argument's ``path``."""
    place = function.__name__.strip("_")

    @functools.wraps(function)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R | None:
        if self.failures.disabled and (place, _subject(args)) in self.failures.disabled:
            return None
        try:
            return function(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - law 6: a recorder never raises into the user's step
            self.failures.add(place, _subject(args), error)
            return None

    return call


def _subject(args: tuple[Any, ...]) -> Any:
    return getattr(args[0], "path", None) if args else None
