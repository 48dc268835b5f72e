"""The rules of a mapping: which nodes of the candidate are which nodes of the reference, and by what transform.

``core.matching.mapping_file`` reads them from a file; ``core.matching.proposing`` makes them from two runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from msprobe.core.errors import MappingError
from msprobe.core.matching.names import normalise, split_operator
from msprobe.core.matching.transforms import Transform
from msprobe.core.suggestions import closest

PLACEHOLDER = re.compile(r"\{(\w+)\}")

Specificity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. With one path on each side it speaks of the nodes that fit and of all below them.

    With several paths on a side these nodes together are the one node of the other side, made by ``transform``. An
    empty ``reference`` means: leave these nodes out of the comparison on both sides. ``classes`` limits the rule to
    nodes of these classes, of the candidate and of the reference; "" is any. ``note`` says why a rule was proposed.
    """

    candidate: tuple[str, ...]
    reference: tuple[str, ...]
    where: str
    transform: Transform = field(default_factory=Transform)
    classes: tuple[str, str] = ("", "")
    confidence: float = 1.0
    note: str = ""

    @property
    def ignores(self) -> bool:
        """Tells whether the rule leaves nodes out instead of naming their partners."""
        return not self.reference

    @property
    def combines(self) -> bool:
        """Tells whether tensors must be transformed before they can be compared."""
        return len(self.candidate) > 1 or len(self.reference) > 1 or not self.transform.is_plain

    @property
    def specificity(self) -> Specificity:
        """Orders rules by their first candidate's path: literal segments, then characters."""
        return specificity(self.candidate[0])

    def swapped(self) -> Rule:
        """Gives the rule read from the other side."""
        if self.ignores:
            return self
        return Rule(
            self.reference, self.candidate, self.where, self.transform, self.classes[::-1], self.confidence, self.note
        )


@dataclass(frozen=True, slots=True)
class ClassRule:
    """Inside containers of a class, which child's path of the candidate is which of the reference.

    ``classes`` as in ``Rule``; both "" means the outermost module.
    """

    classes: tuple[str, str]
    children: tuple[tuple[str, str], ...]
    where: str

    def swapped(self) -> ClassRule:
        """Gives the rule read from the other side."""
        return ClassRule(self.classes[::-1], tuple((b, a) for a, b in self.children), self.where)


@dataclass(frozen=True, slots=True)
class Apart:
    """A node of the candidate, with all below it, is not the node of the reference, nor any below that.

    Speaks against whatever would pair them by itself: names, content, structure. Both paths use the same placeholders.
    """

    candidate: str
    reference: str
    where: str

    def swapped(self) -> Apart:
        """Gives the rule read from the other side."""
        return Apart(self.reference, self.candidate, self.where)


@dataclass(frozen=True, slots=True)
class Translation:
    """What the mapping says of one path: its name on the other side, or that it is ignored, and by which rule."""

    path: str
    rule: Rule


class Mapping:
    """The rules of one mapping file, ready to translate paths of the candidate."""

    def __init__(  # noqa: PLR0913 -- one for each part of the file
        self,
        rules: Iterable[Rule],
        source: str,
        *,
        class_rules: Iterable[ClassRule] = (),
        aparts: Iterable[Apart] = (),
        tokens: tuple[str, str] = ("", ""),
        ready: Iterable[Mapping] = (),
        automatic: bool = True,
    ) -> None:
        self.source = source
        self.rules = tuple(rules)
        self.class_rules = tuple(class_rules)
        self.aparts = tuple(aparts)
        #: How rows of activations are laid out on either side: "padded", "packed" or "".
        self.tokens = tokens
        #: Further mappings, of which the best is followed where nothing surer speaks.
        self.ready = tuple(ready)
        #: Whether content, shapes and structure pair what the rules and equal names leave.
        self.automatic = automatic
        #: Written for a family of models: only rules that fit are followed, in the direction that fits.
        self.is_ready = False
        self._exact: dict[str, list[Rule]] = {}
        self._patterns: list[tuple[re.Pattern[str], Rule]] = []
        for rule in sorted((r for r in self.rules if not r.combines), key=lambda r: r.specificity, reverse=True):
            if "{" in rule.candidate[0]:
                self._patterns.append((pattern(rule.candidate[0]), rule))
            else:
                self._exact.setdefault(rule.candidate[0], []).append(rule)
        self._modules: dict[tuple[str, str], Translation | None] = {}

    def swapped(self) -> Mapping:
        """Gives the mapping from the reference to the candidate."""
        return self._with(
            rules=[rule.swapped() for rule in self.rules],
            class_rules=[rule.swapped() for rule in self.class_rules],
            aparts=[apart.swapped() for apart in self.aparts],
            tokens=(self.tokens[1], self.tokens[0]),
        )

    def with_ready(self, ready: Iterable[Mapping]) -> Mapping:
        """Gives the mapping with further ones to follow where nothing surer speaks."""
        return self._with(ready=ready)

    def _with(self, **changes: Any) -> Mapping:
        kept = {
            name: getattr(self, name) for name in ("rules", "class_rules", "aparts", "tokens", "ready", "automatic")
        }
        made = Mapping(source=self.source, **{**kept, **changes})
        made.is_ready = self.is_ready
        return made

    def translate(self, path: str, class_name: str = "") -> Translation | None:
        """Gives the name that a candidate's node has on the other side; None where no rule of one path speaks of it."""
        module, operator = split_operator(path)
        key = (module, "" if operator else class_name)
        if key not in self._modules:
            self._modules[key] = self._translate_module(*key)
        found = self._modules[key]
        if found is None or not operator or found.rule.ignores:
            return found
        return Translation(f"{found.path}/{operator}", found.rule)

    def _translate_module(self, module: str, class_name: str) -> Translation | None:
        best: tuple[Specificity, Translation] | None = None
        parts = module.split(".")
        for length in range(len(parts), 0, -1):
            head, tail = ".".join(parts[:length]), parts[length:]
            for rule, renamed in self._rules_for(head):
                if rule.classes[0] and (tail or rule.classes[0] != class_name):
                    continue
                if best is None or rule.specificity > best[0]:
                    best = (rule.specificity, Translation(".".join([renamed, *tail]) if renamed else "", rule))
        return best[1] if best else None

    def _rules_for(self, head: str) -> Iterable[tuple[Rule, str]]:
        for rule in self._exact.get(head, ()):
            yield rule, rule.reference[0] if rule.reference else ""
        for compiled, rule in self._patterns:
            match = compiled.fullmatch(head)
            if match:
                yield rule, fill(rule.reference[0], match) if rule.reference else ""

    def check_used(self, candidate_paths: Iterable[str], reference_paths: Iterable[str]) -> None:
        """Checks that every rule speaks of a node that is there.

        Raises:
            MappingError: A rule matches no node of the candidate, or its other side no node of the reference.
        """
        sides = (_module_names(candidate_paths), _module_names(reference_paths))
        for apart in self.aparts:
            _check_path(apart.candidate, "candidate", sides[0], sides[1], apart.where)
            _check_path(apart.reference, "reference", sides[1], sides[0], apart.where)
        for rule in self.rules:
            if rule.ignores:
                self._check_ignored(rule, *sides)
                continue
            for name, patterns, known, other in (
                ("candidate", rule.candidate, sides[0], sides[1]),
                ("reference", rule.reference, sides[1], sides[0]),
            ):
                for path in patterns:
                    _check_path(path, name, known, other, rule.where)

    @staticmethod
    def _check_ignored(rule: Rule, candidates: set[str], references: set[str]) -> None:
        if not any(pattern(rule.candidate[0]).fullmatch(path) for path in candidates | references):
            near = hint(rule.candidate[0], candidates | references)
            raise MappingError(f"{rule.where}: no node of either run is called {rule.candidate[0]!r}.{near}")


def _check_path(path: str, side: str, known: set[str], other: set[str], where: str) -> None:
    compiled = pattern(path)
    if any(compiled.fullmatch(name) for name in known):
        return
    near = hint(path, known)
    if any(compiled.fullmatch(name) for name in other):
        near = " The other run has it: if the file is written the other way round, add --swap."
    raise MappingError(f"{where}: no node of the {side} is called {path!r}.{near}")


def specificity(path: str) -> Specificity:
    """Orders paths with placeholders: those with more literal segments first, then the longer ones."""
    return sum("{" not in part for part in path.split(".")), len(path)


def pattern(name: str) -> re.Pattern[str]:
    """Compiles a path with placeholders; each placeholder is a named group, a repeated one must repeat its text."""
    out, position, seen = [], 0, set[str]()
    for match in PLACEHOLDER.finditer(name):
        word = match.group(1)
        out.append(re.escape(name[position : match.start()]))
        body = ".+" if word == "rest" else "[^.]+"
        out.append(f"(?P={word})" if word in seen else f"(?P<{word}>{body})")
        seen.add(word)
        position = match.end()
    return re.compile("".join(out) + re.escape(name[position:]))


def fill(path: str, match: re.Match[str]) -> str:
    """Puts what placeholders stood for into a path."""
    return PLACEHOLDER.sub(lambda found: match.group(found.group(1)), path)


def hint(name: str, known: Iterable[str]) -> str:
    """Words the nearest known name."""
    near = closest(name, known)
    return f" Did you mean {near!r}?" if near else ""


def _module_names(paths: Iterable[str]) -> set[str]:
    """Gives the modules of some node paths, and every container above them."""
    found: set[str] = set()
    for path in paths:
        module = split_operator(normalise(path))[0]
        while module and module not in found:
            found.add(module)
            module = module.rpartition(".")[0]
    return found
