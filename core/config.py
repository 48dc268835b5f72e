"""Reads recording options from a file (``probe.yaml``, also JSON and TOML) and names the line of each mistake."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, StrictBool, StrictInt, StrictStr, ValidationError

from msprobe.core.documents import Document, read_document
from msprobe.core.errors import ConfigError
from msprobe.core.options import OPTION_NAMES, RecordOptions, parse_option, preset_values
from msprobe.core.suggestions import unknown

_Words = StrictStr | list[StrictStr]
_Ranges = StrictInt | StrictStr | list[StrictInt | StrictStr]


class RecordConfig(BaseModel):
    """The keys of a config file and their types; ``RecordOptions`` says what they mean."""

    model_config = ConfigDict(extra="forbid")

    preset: StrictStr = ""
    level: StrictStr = ""
    what: _Words = ""
    what_for: dict[StrictStr, _Words] = {}
    targets: _Words = ""
    exclude: _Words = ""
    steps: _Ranges = ""
    every: StrictInt = 1
    window: StrictInt = 1
    ranks: _Ranges = ""
    inputs: StrictBool = True
    outputs: StrictBool = True
    parameters: StrictBool = True
    buffers: StrictBool = True
    gradients: StrictBool = True
    optimizer_state: StrictBool = False
    updated_parameters: StrictBool = False
    updates: StrictBool = False
    scalars: StrictBool = False
    collectives: StrictBool = False
    routing: StrictBool = False
    attention: StrictBool = False
    alerts: _Words = ""
    on_alert: _Words = ""
    dump_on_alert: StrictInt = 0
    stop_on_alert: StrictBool = False
    control: StrictBool | StrictStr = False
    stacks: StrictBool = False
    trace: StrictBool = True
    vectors: StrictBool = True
    allow_decompile: StrictBool = False
    start_step: StrictInt = 0
    tensor_budget: StrictInt | StrictStr = 0
    queue_bytes: StrictInt | StrictStr = 0
    mesh: StrictStr | dict[StrictStr, StrictInt] = ""
    context_parallel: StrictStr = ""
    layouts: _Words = ""
    batch_order: StrictStr = "blocks"


def load_options(path: str | Path, overrides: Mapping[str, Any] | None = None) -> RecordOptions:
    """Reads a config file; ``overrides`` (from the command line or from code) win over it.

    Raises:
        ConfigError: Something in the file is wrong; all mistakes are named, each with its line.
    """
    _, found = _checked(path)
    overrides = {name: parse_option(name, value) for name, value in (overrides or {}).items()}
    preset = preset_values(str(overrides.get("preset") or found.get("preset") or ""))
    return RecordOptions(**{**preset, **found, **overrides})


def load_values(path: str | Path) -> dict[str, Any]:
    """Gives the options that a config file sets as it writes them, once they are right.

    Raises:
        ConfigError: As ``load_options``.
    """
    return _checked(path)[0]


def _checked(path: str | Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Gives the options that a file sets, as written and as ``RecordOptions`` holds them."""
    document = read_document(path)
    values = _typed(document)
    found: dict[str, Any] = {}
    mistakes: list[str] = []
    for name, value in values.items():
        try:
            found[name] = parse_option(name, value)
        except ConfigError as error:
            mistakes.append(f"{document.where(name)}: {error}")
    if mistakes:
        raise ConfigError("\n".join(mistakes))
    return values, found


def _typed(document: Document) -> dict[str, Any]:
    """Gives the keys that the file sets, once their names and types are right."""
    if document.content is None:
        return {}
    if not isinstance(document.content, dict):
        raise ConfigError(f"{document.where()}: expected a table of options such as 'level: module'.")
    try:
        return RecordConfig.model_validate(document.content).model_dump(exclude_unset=True)
    except ValidationError as error:
        raise ConfigError("\n".join(_mistakes(document, error))) from None


def _mistakes(document: Document, error: ValidationError) -> list[str]:
    """Words pydantic's findings: for each option the deepest one, for a choice of types gives one for each choice."""
    deepest: dict[str, tuple[int, str]] = {}
    for finding in error.errors():
        name = str(finding["loc"][0])
        if finding["type"] == "extra_forbidden":
            text = unknown("option", name, OPTION_NAMES)
        else:
            text = f"option {name!r}: {finding['msg'][0].lower()}{finding['msg'][1:]}, not {finding['input']!r}."
        keys: tuple[str | int, ...] = (name, *(key for key in finding["loc"][1:] if isinstance(key, int)))
        if len(keys) > deepest.get(name, (0, ""))[0]:
            deepest[name] = (len(keys), f"{document.where(*keys)}: {text}")
    return [message for _, message in deepest.values()]
