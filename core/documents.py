"""Reads YAML, JSON and TOML files that people write, and remembers on which line each value stands.

YAML is read by the rules of YAML 1.2: ``on`` and ``no`` are words, ``1e-3`` is a number, ``010`` is ten. A key given
twice, a tab that indents, an anchor: each is refused with its line, for each is a mistake that would pass in silence.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import yaml

from msprobe.core.errors import ConfigError
from msprobe.core.toml import tomllib

Keys = tuple["str | int", ...]

_SAFE_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SAFE_LOADER):  # type: ignore[misc]  # which base it is depends on how PyYAML was built
    """A safe loader with the scalars of the YAML 1.2 core schema."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


_FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"


def _read_as(tag: str, pattern: str, first: str) -> None:
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", re.compile(f"^(?:{pattern})$"), [*first, ""])


def _float(text: str) -> float:
    return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))


_read_as("null", "~|null|Null|NULL|", "~nN")
_read_as("bool", "true|True|TRUE|false|False|FALSE", "tTfF")
_read_as("int", "[-+]?[0-9]+", "-+0123456789")
_read_as("float", _FLOAT, "-+.0123456789")
_Loader.add_constructor("tag:yaml.org,2002:int", lambda _, node: int(node.value))
_Loader.add_constructor("tag:yaml.org,2002:float", lambda _, node: _float(node.value))


@dataclass(frozen=True, slots=True)
class Document:
    """A file's content, and the line of each key and list item by its path of keys."""

    path: Path
    content: Any
    lines: dict[Keys, int]

    def where(self, *keys: str | int) -> str:
        """Gives ``file:line`` of a value; where its own line is not known, that of what holds it."""
        while keys and keys not in self.lines:
            keys = keys[:-1]
        return f"{self.path}:{self.lines.get(keys, 1)}"


def read_document(path: str | Path) -> Document:
    """Reads a .yaml, .yml, .json or .toml file.

    Raises:
        ConfigError: The file cannot be read or is not well formed; the message names file and line.
    """
    path = Path(path)
    readers = {".yaml": _read_yaml, ".yml": _read_yaml, ".json": _read_json, ".toml": _read_toml}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise ConfigError(f"{path}: unknown kind of file. Its name must end in {', '.join(readers)}.")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text.") from None
    return reader(path, text)


def parse_yaml(text: str, name: str) -> Document:
    """Reads YAML text; ``name`` stands for the file in messages.

    Raises:
        ConfigError: It is not well formed.
    """
    return _read_yaml(Path(name), text)


#: A path with placeholders, unquoted, as an entry of a list in brackets: YAML would take its braces for a table.
_BARE_PATH = re.compile(r"(?P<before>[\[,]\s*)(?P<path>[^\s\[\],'\"{}:]*\{\w+\}[^\s\[\],'\":]*)(?=\s*[,\]])")


def _read_yaml(path: Path, text: str) -> Document:
    text = _BARE_PATH.sub(r'\g<before>"\g<path>"', text)
    for number, line in enumerate(text.splitlines(), 1):
        if re.match(r" *\t\s*\S", line):
            raise ConfigError(f"{path}:{number}: a tab indents this line; YAML wants spaces.")
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        lines: dict[Keys, int] = {}
        content = None if node is None else _YamlNodes(path, loader, lines).value(node, ())
    except yaml.MarkedYAMLError as error:
        number = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{path}:{number}: is no well-formed YAML: {error.problem}.") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: is no well-formed YAML: {error}.") from None
    finally:
        loader.dispose()
    return Document(path, content, lines)


class _YamlNodes:
    """Turns YAML nodes into plain values and notes their lines."""

    def __init__(self, path: Path, loader: Any, lines: dict[Keys, int]) -> None:
        self._path, self._loader, self._lines = path, loader, lines
        self._seen: set[int] = set()

    def value(self, node: yaml.Node, keys: Keys) -> Any:
        self._lines.setdefault(keys, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._loader.construct_object(node, deep=True)
        if id(node) in self._seen:
            raise ConfigError(f"{self._path}:{node.start_mark.line + 1}: anchors and aliases are not supported.")
        self._seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*keys, i)) for i, item in enumerate(node.value)]
        assert isinstance(node, yaml.MappingNode)
        return self._mapping(node, keys)

    def _mapping(self, node: yaml.MappingNode, keys: Keys) -> dict[str | int, Any]:
        found: dict[str | int, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._loader.construct_object(key_node, deep=True)
            if not isinstance(key, str | int) or isinstance(key, bool):
                raise ConfigError(f"{self._path}:{line}: a key must be a word or a whole number, not {key!r}.")
            if key in found:
                first = self._lines[(*keys, key)]
                raise ConfigError(f"{self._path}:{line}: key {key!r} is given twice; the first is on line {first}.")
            self._lines[(*keys, key)] = line
            found[key] = self.value(value_node, (*keys, key))
        return found


def _read_json(path: Path, text: str) -> Document:
    def table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        for key in keys:
            if keys.count(key) > 1:
                line = _line_of(text, rf'"{re.escape(key)}"\s*:', occurrence=1)
                raise ConfigError(f"{path}:{line}: key {key!r} is given twice.")
        return dict(pairs)

    try:
        content = json.loads(text, object_pairs_hook=table)
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}: is no well-formed JSON: {error.msg}.") from None
    return Document(path, content, _key_lines(content, text, r'"{key}"\s*:'))


def _read_toml(path: Path, text: str) -> Document:
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+)", str(error))
        line = found[1] if found else text.count("\n") + 1
        raise ConfigError(f"{path}:{line}: is no well-formed TOML: {error}.") from None
    return Document(path, content, _key_lines(content, text, r'(?m)^\s*\[?"?{key}"?\s*[=\]]'))


def _key_lines(content: Any, text: str, pattern: str) -> dict[Keys, int]:
    """Finds the line of each key of the outermost table by looking for its text; deeper ones share it."""
    if not isinstance(content, dict):
        return {(): 1}
    return {(key,): _line_of(text, pattern.replace("{key}", re.escape(key))) for key in content}


def _line_of(text: str, pattern: str, *, occurrence: int = 0) -> int:
    starts = [found.end() for found in re.finditer(pattern, text)]
    return text.count("\n", 0, starts[min(occurrence, len(starts) - 1)]) + 1 if starts else 1
