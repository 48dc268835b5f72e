"""Recognise modules by the content of their parameters, where names do not tell."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from msprobe.core.matching.parameters import Parameter, Parameters


def parameter_content(parameters: Parameters) -> dict[int, Hashable]:
    """Gives, for each module with parameters, a key of what they held at the first recorded step.

    The key is the checksum where one was recorded, else a fingerprint of statistics, with name and shape. A constant
    parameter (the ones of a norm, a zero bias) looks like any other: modules that hold nothing else get no key.
    """
    return {
        node: tuple(sorted(map(_key, own), key=repr))
        for node, own in parameters.items()
        if any(parameter.tells for parameter in own)
    }


def _key(parameter: Parameter) -> Hashable:
    content: Hashable = ("unknown", parameter.row)
    if parameter.checksum is not None:
        content = parameter.checksum
    elif parameter.fingerprint is not None:
        content = parameter.fingerprint
    return parameter.argument, parameter.shape, content
