"""The plugin table: which adapters, comparators and visualizers there are, by name, and how to get one.

Built-in rows come from ``plugins.toml``, others from entry points of the group ``msprobe``. A plugin's own code is
imported when it is first used, never to list it. ``MSPROBE_PLUGINS`` narrows the foreign ones to those it names.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import os
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pluggy

from msprobe import hookspecs
from msprobe.core.errors import PluginError
from msprobe.core.suggestions import unknown
from msprobe.core.toml import tomllib

GROUP = "msprobe"
KINDS: tuple[str, ...] = ("adapters", "comparators", "visualizers", "alerts", "layouts", "mappings")
TABLE_FILE = Path(__file__).with_name("plugins.toml")

#: What an object of each kind must have, any one group of it.
_MUST_HAVE: dict[str, tuple[tuple[str, ...], ...]] = {
    "adapters": (("name", "owns", "record"),),
    "comparators": (("name", "better", "compare"), ("name", "better", "compare_statistics")),
    "visualizers": (("name", "file_name", "render"),),
    "alerts": (("name", "check"),),
    "layouts": (("name", "rules"),),
    "mappings": (("name", "mapping"),),
}
_REQUIREMENT = re.compile(r"([A-Za-z0-9][\w.-]*)\s*(?:>=\s*([0-9.]+))?")


class PluginWarning(UserWarning):
    """A plugin of another package could not be loaded; msprobe goes on without it."""


@dataclass(frozen=True, slots=True)
class Plugin:
    """One row of the table. ``origin`` is ``msprobe`` or the distribution that brought it."""

    kind: str
    name: str
    target: object
    origin: str = "msprobe"
    summary: str = ""
    requires: tuple[str, ...] = ()
    framework: str = ""
    tensors: tuple[str, ...] = ()
    launcher: str = ""
    enabled: bool = True

    @property
    def missing(self) -> tuple[str, ...]:
        """The requirements that are not installed, or too old."""
        return tuple(r for r in self.requires if not _installed(r))

    @property
    def state(self) -> str:
        """``ready``, ``disabled`` or ``missing ...``."""
        if not self.enabled:
            return "disabled"
        return f"missing {', '.join(self.missing)}" if self.missing else "ready"


@dataclass(frozen=True, slots=True)
class Broken:
    """A plugin that could not be loaded, and why."""

    name: str
    origin: str
    reason: str


@dataclass(slots=True)
class PluginTable:
    """All plugins by kind and name, and those that could not be loaded."""

    rows: dict[tuple[str, str], Plugin] = field(default_factory=dict)
    broken: list[Broken] = field(default_factory=list)
    _objects: dict[tuple[str, str], Any] = field(default_factory=dict)

    def add(self, plugin: Plugin) -> None:
        """Adds a row; the first to take a name keeps it."""
        taken = self.rows.get((plugin.kind, plugin.name))
        if taken:
            reason = f"the name {plugin.name!r} among {plugin.kind} is taken by {taken.origin}"
            self.broken.append(Broken(plugin.name, plugin.origin, reason))
            return
        self.rows[plugin.kind, plugin.name] = plugin

    def of_kind(self, kind: str, *, usable: bool = False) -> list[Plugin]:
        """Lists the plugins of a kind; with ``usable``, those that are enabled and lack nothing."""
        return [p for (k, _), p in self.rows.items() if k == kind and not (usable and p.state != "ready")]

    def get(self, kind: str, name: str) -> Any:
        """Gives the object of a plugin, importing it the first time.

        Raises:
            PluginError: No plugin has that name, or it lacks something, or its code is broken.
        """
        plugin = self.find(kind, name)
        if (kind, name) not in self._objects:
            self._objects[kind, name] = _load(plugin, must_have=_MUST_HAVE[kind])
        return self._objects[kind, name]

    def find(self, kind: str, name: str) -> Plugin:
        """Gives the row of a plugin.

        Raises:
            PluginError: No plugin has that name.
        """
        plugin = self.rows.get((kind, name))
        if plugin is None:
            raise PluginError(unknown(kind[:-1], name, (p.name for p in self.of_kind(kind))))
        return plugin


@functools.lru_cache(maxsize=1)
def plugin_table() -> PluginTable:
    """Gives the table, built once. Warns of every foreign plugin that is broken."""
    table = read_table()
    load_entry_points(table, importlib.metadata.entry_points(group=GROUP))
    for broken in table.broken:
        warnings.warn(f"plugin {broken.name!r} of {broken.origin}: {broken.reason}", PluginWarning, stacklevel=2)
    return table


def find_launcher(name: str) -> Callable[..., int]:
    """Gives what runs a program under an adapter: ``launch(command, options, out, perturb=...)``.

    Raises:
        PluginError: No adapter has that name, it lacks something, or it cannot run programs.
    """
    table = plugin_table()
    plugin = table.find("adapters", name)
    if not plugin.launcher:
        raise PluginError(f"adapter {name!r} ({plugin.origin}) cannot run programs; call msprobe.record in the script.")
    return _load(replace(plugin, target=plugin.launcher), must_have=((),))  # type: ignore[no-any-return]


def read_table(path: Path = TABLE_FILE) -> PluginTable:
    """Reads the built-in rows."""
    table = PluginTable()
    for kind, rows in tomllib.loads(path.read_text(encoding="utf-8")).items():
        for row in rows:
            table.add(_row(kind, row))
    return table


def load_entry_points(table: PluginTable, entry_points: Iterable[importlib.metadata.EntryPoint]) -> None:
    """Lets each entry point register its plugins; one that fails is noted and the others go on."""
    wanted = os.environ.get("MSPROBE_PLUGINS")
    names = None if wanted is None else {name.strip() for name in wanted.split(",")}
    for entry_point in entry_points:
        if names is not None and entry_point.name not in names:
            continue
        origin = f"{entry_point.dist.name} {entry_point.dist.version}" if entry_point.dist else "an unknown package"
        try:
            _call_hooks(table, entry_point, origin)
        except Exception as error:  # noqa: BLE001  # a plugin's own code is called
            table.broken.append(Broken(entry_point.name, origin, f"{type(error).__name__}: {error}"))


def _call_hooks(table: PluginTable, entry_point: importlib.metadata.EntryPoint, origin: str) -> None:
    manager = pluggy.PluginManager("msprobe")
    manager.add_hookspecs(hookspecs)
    manager.register(entry_point.load(), entry_point.name)
    manager.check_pending()
    found: list[Plugin] = []
    for kind in KINDS:

        def register(name: str, target: object, *, kind: str = kind, **details: Any) -> None:
            found.append(_row(kind, {"name": name, "target": target, "origin": origin, **details}))

        getattr(manager.hook, f"register_{kind}")(register=register)
    for plugin in found:
        table.add(plugin)


def _row(kind: str, values: Mapping[str, Any]) -> Plugin:
    lists = {name: tuple(values.get(name, ())) for name in ("requires", "tensors")}
    return Plugin(kind=kind, **{**values, **lists})


def _load(plugin: Plugin, *, must_have: tuple[tuple[str, ...], ...]) -> Any:
    subject = f"{plugin.kind[:-1]} {plugin.name!r} ({plugin.origin})"
    if plugin.missing:
        raise PluginError(
            f"{subject} needs {', '.join(plugin.missing)}. Install it: pip install {_quoted(plugin.missing)}"
        )
    try:
        made = _import(plugin.target) if isinstance(plugin.target, str) else plugin.target
        made = made() if isinstance(made, type) else made
    except Exception as error:
        raise PluginError(f"{subject} cannot be loaded: {type(error).__name__}: {error}") from error
    if not any(all(hasattr(made, name) for name in names) for names in must_have):
        wanted = " or ".join(", ".join(names) for names in must_have)
        raise PluginError(f"{subject} is no {plugin.kind[:-1]}: it must have {wanted}.")
    return made


def _import(target: str) -> Any:
    module, _, attribute = target.partition(":")
    found: Any = importlib.import_module(module)
    for name in filter(None, attribute.split(".")):
        found = getattr(found, name)
    return found


def _installed(requirement: str) -> bool:
    """Tells whether a distribution is there in the version asked for, without importing it."""
    found = _REQUIREMENT.fullmatch(requirement)
    if not found:
        return False
    try:
        version = importlib.metadata.version(found[1])
    except importlib.metadata.PackageNotFoundError:
        return False
    return not found[2] or _release(version) >= _release(found[2])


def _release(version: str) -> tuple[int, ...]:
    """Gives the release numbers of a version: ``2.13.0+cpu`` is (2, 13, 0)."""
    plain = re.match(r"[0-9.]*", version)
    return tuple(int(part) for part in (plain[0] if plain else "").split(".") if part)


def _quoted(requirements: Iterable[str]) -> str:
    return " ".join(f"'{r}'" for r in requirements)
