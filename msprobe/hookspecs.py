"""The hooks by which other packages add to msprobe.

A plugin is a module that an entry point of the group ``msprobe`` names. Its functions, marked with ``hookimpl``, get a
``register`` callable and name what they bring, as ``"module:attribute"`` text that is imported on first use::

    from msprobe.hookspecs import Register, hookimpl

    @hookimpl
    def register_comparators(register: Register) -> None:
        register("sign_flips", "my_package.sign_flips:SignFlips", summary="share of elements whose sign differs")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pluggy

hookspec = pluggy.HookspecMarker("msprobe")
hookimpl = pluggy.HookimplMarker("msprobe")


class Register(Protocol):
    """Adds one plugin to the table."""

    def __call__(  # noqa: PLR0913  # one for each column of the table
        self,
        name: str,
        target: object,
        *,
        summary: str = "",
        requires: Sequence[str] = (),
        framework: str = "",
        tensors: Sequence[str] = (),
        launcher: str = "",
    ) -> None:
        """Adds a plugin.

        Args:
            name: The word by which the command line and config files know it.
            target: ``"module:attribute"``, imported on first use, or the object itself. A class is instantiated.
            summary: One line for ``msprobe plugins``.
            requires: Distributions that must be installed, such as ``"torch>=2.4"``.
            framework: For adapters: the top-level module that must be loaded before the adapter is asked at all.
            tensors: For adapters: other top-level modules whose tensors it records in ``msprobe.save``.
            launcher: For adapters: ``"module:attribute"`` of the function behind ``msprobe record``, if there is one.
        """
        ...


@hookspec
def register_adapters(register: Register) -> None:
    """Registers adapters: what records models of a framework (``msprobe.core.protocols.Adapter``)."""


@hookspec
def register_comparators(register: Register) -> None:
    """Registers comparators: measures of a pair of tensors or of recorded statistics."""


@hookspec
def register_visualizers(register: Register) -> None:
    """Registers visualizers: what shows a comparison as text or as a file."""


@hookspec
def register_alerts(register: Register) -> None:
    """Registers alert rules: what watches a training while it is recorded (``msprobe.core.protocols.AlertRule``)."""


@hookspec
def register_layouts(register: Register) -> None:
    """Registers layout rules: how classes of layers are cut over ranks (``msprobe.core.protocols.LayoutRules``)."""


@hookspec
def register_mappings(register: Register) -> None:
    """Registers ready mappings between two implementations of a model (``core.matching.ready.ReadyMapping``)."""
