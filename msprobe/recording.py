"""Starts recordings: finds the adapter that owns the model and hands over.

A framework is looked for among the loaded modules and never imported: whoever has a model has its framework loaded.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msprobe.core.errors import PluginError, RecordingError
from msprobe.core.options import RecordOptions
from msprobe.plugins import Plugin, plugin_table

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from msprobe.core.options import OptionValues
    from msprobe.core.protocols import Adapter, Probe

_unowned_types: set[type] = set()


def record(
    model: object,
    path: str | Path,
    *,
    optimizer: object = None,
    config: str | Path | None = None,
    context: Mapping[str, object] | None = None,
    **options: Unpack[OptionValues],
) -> Probe:
    """Records what a model computes into the run directory ``path``, until the probe is closed.

    Args:
        model: The model to watch, or several by name.
        path: The run directory; it is made, and a run that is there already gets one more segment.
        optimizer: Where given, its own step ends a step of the recording; else call ``probe.step()``.
        config: A file of options (``probe.yaml``); those given here win over it.
        context: Whatever explains differences later (a config, a data set's name); kept with the run.
        options: See ``msprobe.RecordOptions``.

    Raises:
        MsprobeError: No adapter knows the model, an option is wrong, or the run cannot be written.
    """
    if not str(path).strip():
        raise RecordingError("the name of the run directory is empty. Name a new folder, such as 'runs/a'.")
    chosen = with_plugins(_options(config, options), config)
    return find_adapter(model).record(model, Path(path), chosen, optimizer=optimizer, **(context or {}))


def monitor(
    model: object,
    optimizer: object = None,
    *,
    out: str | Path,
    config: str | Path | None = None,
    context: Mapping[str, object] | None = None,
    **options: Unpack[OptionValues],
) -> Probe:
    """Watches the vital signs of a training: ``record`` with the preset ``monitor`` (``msprobe.core.presets``).

    Args:
        model: The model to watch, or several by name.
        optimizer: Its own step ends a step of the recording; without it call ``probe.step()``.
        out: The run directory.
        config: A file of options, which win over the preset.
        context: Whatever explains differences later; kept with the run.
        options: See ``msprobe.RecordOptions``; they win over the file.

    Raises:
        MsprobeError: As ``record`` does.
    """
    chosen: OptionValues = {"preset": "monitor", **options}
    return record(model, out, optimizer=optimizer, config=config, context=context, **chosen)


def save(tensor: Any, name: str) -> None:
    """Records any tensor under a name, and its gradient when there is one. Does nothing while nothing records."""
    for adapter in _adapters_for(type(tensor)):
        adapter.save(tensor, name)
        return
    if type(tensor) not in _unowned_types:
        _unowned_types.add(type(tensor))
        message = f"msprobe.save({name!r}): no adapter knows {_type_name(tensor)}; it is not recorded"
        warnings.warn(message, RuntimeWarning, stacklevel=2)


def seed_all(seed: int = 1234, *, deterministic: bool = True) -> None:
    """Seeds Python, NumPy and every loaded framework, and asks the frameworks for deterministic algorithms."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    for adapter, _ in _loaded_adapters([]):
        adapter.seed_all(seed, deterministic=deterministic)


def find_adapter(model: object) -> Adapter:
    """Gives the adapter that owns the model, or all models of a mapping.

    Raises:
        RecordingError: None does; the message says which were asked.
    """
    models = list(model.values()) if isinstance(model, Mapping) else [model]
    asked: list[str] = []
    for adapter, plugin in _loaded_adapters(asked):
        asked.append(plugin.name)
        if models and all(adapter.owns(one) for one in models):
            return adapter
    types = ", ".join(sorted({_type_name(one) for one in models})) or "an empty mapping"
    raise RecordingError(
        f"no adapter knows a model of type {types}. Asked: {', '.join(asked) or 'none, for no framework is loaded'}. "
        "`msprobe plugins` lists what there is and what is missing."
    )


def with_plugins(options: RecordOptions, config: str | Path | None) -> RecordOptions:
    """Gives options that name alert and layout rules by where they stand, and the config file to watch if asked for.

    Raises:
        PluginError: No rule has that name.
    """
    rules = tuple(_rule(asked) for asked in options.alerts)
    control = options.control
    if os.environ.get("DYNAMIC_MONITOR", "").lower() in ("1", "true", "on", "yes"):
        control = str(Path(config).absolute()) if config is not None else control or "on"
    return replace(options, alerts=rules, control=control, layouts=_layouts(options.layouts))


def _rule(asked: Any) -> Any:
    """Gives the target of a plugin's name; ``module:attribute`` and objects stand for themselves."""
    return plugin_table().find("alerts", asked).target if isinstance(asked, str) and ":" not in asked else asked


def _layouts(asked: tuple[str, ...]) -> tuple[str, ...]:
    """Adds the layout rules that plugins bring, by where they stand: the adapter that applies them imports them."""
    rows = plugin_table().of_kind("layouts", usable=True)
    return (*asked, *(row.target for row in rows if isinstance(row.target, str) and row.target not in asked))


def _options(config: str | Path | None, values: Mapping[str, Any]) -> RecordOptions:
    if config is None:
        return RecordOptions.create(**values)
    from msprobe.core.config import load_options

    return load_options(config, values)


def _loaded_adapters(failures: list[str]) -> Iterator[tuple[Adapter, Plugin]]:
    """Gives the adapters whose framework is loaded; those that cannot be used are noted as failures."""
    table = plugin_table()
    for plugin in table.of_kind("adapters"):
        if not plugin.enabled or (plugin.framework and plugin.framework not in sys.modules):
            continue
        try:
            yield table.get("adapters", plugin.name), plugin
        except PluginError as error:
            failures.append(f"{plugin.name} ({error})")


def _adapters_for(tensor_type: type) -> Iterator[Adapter]:
    """Gives the adapters whose framework, or other kinds of tensor, define the type or one of its bases."""
    packages = {base.__module__.partition(".")[0] for base in tensor_type.__mro__}
    for adapter, plugin in _loaded_adapters([]):
        if not packages.isdisjoint((plugin.framework, *plugin.tensors)):
            yield adapter


def _type_name(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
