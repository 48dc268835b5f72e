"""The mapping file: which node of the candidate is which node of the reference.

This reads exact names, ``{i}`` (one path segment) and ``{rest}`` (all that remains), and ``ignore``. What the grammar
of docs/comparing.md has beyond that (combine, class, tokens) is refused by name, never half understood.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msprobe.core.documents import Document, read_document
from msprobe.core.errors import ConfigError, MappingError
from msprobe.core.matching.names import normalise, split_operator
from msprobe.core.suggestions import closest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_TOP_KEYS = {"version", "candidate", "reference", "rules"}
_RULE_KEYS = {"candidate", "reference", "ignore"}
_LATER_KEYS = {"combine", "class", "children", "tokens", "parallel"}
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: nodes that match ``candidate`` are, with all below them, called ``reference`` on the other side.

    An empty ``reference`` means: leave these nodes out of the comparison on both sides.
    """

    candidate: str
    reference: str
    where: str

    @property
    def ignores(self) -> bool:
        """Tells whether the rule leaves nodes out instead of renaming them."""
        return not self.reference

    @property
    def specificity(self) -> tuple[int, int]:
        """Orders rules: more literal segments first, then more characters."""
        literal = [part for part in self.candidate.split(".") if "{" not in part]
        return len(literal), len(self.candidate)


@dataclass(frozen=True, slots=True)
class Translation:
    """What the mapping says of one path: its name on the other side, or that it is ignored, and by which rule."""

    path: str
    rule: Rule


class Mapping:
    """The rules of one mapping file, ready to translate paths of the candidate."""

    def __init__(self, rules: Iterable[Rule], source: str) -> None:
        self.source = source
        self.rules = tuple(rules)
        self._exact: dict[str, Rule] = {}
        self._patterns: list[tuple[re.Pattern[str], Rule]] = []
        for rule in sorted(self.rules, key=lambda r: r.specificity, reverse=True):
            if "{" in rule.candidate:
                self._patterns.append((_pattern(rule.candidate), rule))
            else:
                self._exact[rule.candidate] = rule
        self._modules: dict[str, Translation | None] = {}

    def translate(self, path: str) -> Translation | None:
        """Gives the name that a candidate's node has on the other side; None where no rule speaks of it."""
        module, operator = split_operator(path)
        if module not in self._modules:
            self._modules[module] = self._translate_module(module)
        found = self._modules[module]
        if found is None or not operator or found.rule.ignores:
            return found
        return Translation(f"{found.path}/{operator}", found.rule)

    def _translate_module(self, module: str) -> Translation | None:
        best: tuple[tuple[int, int], Translation] | None = None
        parts = module.split(".")
        for length in range(len(parts), 0, -1):
            head, tail = ".".join(parts[:length]), parts[length:]
            for rule, renamed in self._rules_for(head):
                if best is None or rule.specificity > best[0]:
                    best = (rule.specificity, Translation(".".join([renamed, *tail]) if renamed else "", rule))
        return best[1] if best else None

    def _rules_for(self, head: str) -> Iterable[tuple[Rule, str]]:
        if head in self._exact:
            yield self._exact[head], self._exact[head].reference
        for pattern, rule in self._patterns:
            match = pattern.fullmatch(head)
            if match:
                yield rule, _PLACEHOLDER.sub(lambda found, m=match: m.group(found.group(1)), rule.reference)  # type: ignore[misc]
                return

    def check_used(self, candidate_paths: Iterable[str], reference_paths: Iterable[str]) -> None:
        """Checks that every rule speaks of a node that is there.

        Raises:
            MappingError: A rule matches no node of the candidate, or its other side no node of the reference.
        """
        candidates, references = _module_names(candidate_paths), _module_names(reference_paths)
        for rule in self.rules:
            self._check_side(rule, rule.candidate, candidates, "candidate")
            if not rule.ignores:
                self._check_side(rule, rule.reference, references, "reference")

    def _check_side(self, rule: Rule, name: str, known: set[str], side: str) -> None:
        pattern = _pattern(name)
        if not any(pattern.fullmatch(path) for path in known):
            raise MappingError(f"{rule.where}: no node of the {side} is called {name!r}.{_hint(name, known)}")


def read_mapping(path: str | Path, *, swap: bool = False) -> Mapping:
    """Reads a mapping file; ``swap`` exchanges its two sides.

    Raises:
        MappingError: The file is not well formed, asks for something unknown, or two rules claim one name.
    """
    try:
        document = read_document(path)
    except ConfigError as error:
        raise MappingError(str(error)) from None
    content = document.content
    if not isinstance(content, dict):
        raise MappingError(f"{document.where()}: a mapping file holds 'version: 1' and a list of 'rules'.")
    _check_keys(document, content, _TOP_KEYS, ())
    if content.get("version") != 1:
        raise MappingError(f"{document.where('version')}: this msprobe reads 'version: 1' of the mapping file.")
    rules = content.get("rules")
    if not isinstance(rules, list):
        raise MappingError(f"{document.where('rules')}: 'rules' must be a list of rules.")
    found = [_rule(document, item, index, swap=swap) for index, item in enumerate(rules)]
    _check_unique(found)
    return Mapping(found, str(path))


def _rule(document: Document, item: Any, index: int, *, swap: bool) -> Rule:
    where = document.where("rules", index)
    if not isinstance(item, dict):
        raise MappingError(f"{where}: a rule holds 'candidate' and 'reference', or 'ignore'.")
    _check_keys(document, item, _RULE_KEYS, ("rules", index))
    if "ignore" in item:
        if len(item) > 1:
            raise MappingError(f"{where}: a rule with 'ignore' holds nothing else.")
        return Rule(_name(item["ignore"], where), "", where)
    if set(item) != {"candidate", "reference"}:
        missing = ({"candidate", "reference"} - set(item)).pop()
        raise MappingError(f"{where}: the rule lacks {missing!r}.")
    candidate, reference = _name(item["candidate"], where), _name(item["reference"], where)
    if set(_PLACEHOLDER.findall(candidate)) != set(_PLACEHOLDER.findall(reference)):
        raise MappingError(f"{where}: both sides of a rule must use the same placeholders.")
    return Rule(reference, candidate, where) if swap else Rule(candidate, reference, where)


def _name(value: Any, where: str) -> str:
    if isinstance(value, list):
        raise MappingError(f"{where}: joining several nodes into one is not supported yet; name one node.")
    if not isinstance(value, str) or not value:
        raise MappingError(f"{where}: a node is named by text, not by {value!r}.")
    if re.sub(_PLACEHOLDER, "", value).count("{"):
        raise MappingError(f"{where}: {value!r}: a placeholder is one word in braces, such as {{i}}.")
    return normalise(value)


def _check_keys(document: Document, table: dict[Any, Any], known: set[str], keys: tuple[str | int, ...]) -> None:
    for key in table:
        where = document.where(*keys, key)
        if key in _LATER_KEYS:
            raise MappingError(f"{where}: {key!r} is not supported yet; this msprobe reads renames and 'ignore'.")
        if key not in known:
            raise MappingError(f"{where}: unknown key {key!r}.{_hint(str(key), known)}")


def _check_unique(rules: list[Rule]) -> None:
    seen: dict[str, Rule] = {}
    for rule in rules:
        shape = _PLACEHOLDER.sub("{}", rule.candidate)
        if shape in seen:
            raise MappingError(
                f"{rule.where}: {rule.candidate!r} is claimed by an earlier rule at {seen[shape].where}."
            )
        seen[shape] = rule


def _hint(name: str, known: Iterable[str]) -> str:
    near = closest(name, known)
    return f" Did you mean {near!r}?" if near else ""


def _pattern(name: str) -> re.Pattern[str]:
    out, position = [], 0
    for match in _PLACEHOLDER.finditer(name):
        out.append(re.escape(name[position : match.start()]))
        out.append(f"(?P<{match.group(1)}>.+)" if match.group(1) == "rest" else f"(?P<{match.group(1)}>[^.]+)")
        position = match.end()
    return re.compile("".join(out) + re.escape(name[position:]))


def _module_names(paths: Iterable[str]) -> set[str]:
    """Gives the modules of some node paths, and every container above them."""
    found: set[str] = set()
    for path in paths:
        module = split_operator(normalise(path))[0]
        while module and module not in found:
            found.add(module)
            module = module.rpartition(".")[0]
    return found
