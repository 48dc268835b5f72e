"""Finds the rules that a recording asks for: objects, classes, functions, or where they stand."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from msprobe.core.alerts.findings import Finding
from msprobe.core.errors import ConfigError

if TYPE_CHECKING:
    from msprobe.core.alerts.view import StepView
    from msprobe.core.protocols import AlertRule


class FunctionRule:
    """A function of the user's as a rule: it gives findings, a message, or nothing."""

    summary = "a function of the user's"

    def __init__(self, function: Callable[[StepView], Any]) -> None:
        self.name: str = getattr(function, "__name__", type(function).__name__)
        self._function = function

    def check(self, step: StepView) -> Iterable[Finding]:
        """Asks the function."""
        answer = self._function(step)
        if not answer:
            return ()
        if answer is True:
            answer = f"{self.name} says so"
        return (Finding(self.name, answer),) if isinstance(answer, str) else tuple(answer)


def find_rule(asked: Any) -> AlertRule:
    """Gives a rule of its own for each call: ``module:attribute`` is imported, a class is instantiated.

    Raises:
        ConfigError: There is nothing of that name, or it is no rule.
    """
    found = find_object(asked) if isinstance(asked, str) else asked
    if isinstance(found, type):
        found = found()
    if hasattr(found, "check") and hasattr(found, "name"):
        return found  # type: ignore[no-any-return]
    if callable(found):
        return FunctionRule(found)
    raise ConfigError(f"{asked!r} is no alert rule: it must be a function, or have name and check.")


def find_object(where: str) -> Any:
    """Imports ``module:attribute``.

    Raises:
        ConfigError: It cannot be imported.
    """
    module, _, attribute = where.partition(":")
    if not attribute:
        raise ConfigError(f"{where!r} does not say where it is. Write 'module:attribute'.")
    try:
        found: Any = importlib.import_module(module)
        for name in attribute.split("."):
            found = getattr(found, name)
    except Exception as error:  # whatever the user's module raises; told as what it is
        raise ConfigError(f"{where!r} cannot be imported: {type(error).__name__}: {error}.") from error
    return found
