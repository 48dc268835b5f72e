"""Apply the rules of a mapping to two graphs: renames, rules by class, several nodes as one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from msprobe.core.errors import MappingError
from msprobe.core.matching.combined import NodeGroup
from msprobe.core.matching.mapping import Apart, Mapping, Rule, fill, pattern, specificity
from msprobe.core.matching.names import normalise, split_operator
from msprobe.core.matching.reasons import BY_NAME, BY_NORMALISED_NAME, BY_RELATIVE_NAME, by_rule
from msprobe.core.sites import Node, NodeKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msprobe.core.matching.mapping import ClassRule
    from msprobe.core.matching.nodes import Matcher


def apply_rules(matcher: Matcher, mapping: Mapping) -> None:
    """Pairs what the mapping names.

    Raises:
        MappingError: Two rules claim one node, or a rule names only some of the parts that are there.
    """
    _Ruler(matcher, mapping).apply()


def join_operators(matcher: Matcher) -> None:
    """Joins operators of one name inside all parts of a group, where the whole has it."""
    nodes = (matcher.candidate, matcher.reference)
    paths = [_by_normal_path(side) for side in nodes]
    for group in list(matcher.pairs.groups):
        whole = nodes[1 - group.side][group.whole]
        for index in _operators(nodes[1 - group.side], whole, paths[1 - group.side]):
            operator = split_operator(nodes[1 - group.side][index].path)[1]
            names = [f"{normalise(nodes[group.side][part].path)}/{operator}" for part in group.parts]
            parts = tuple(paths[group.side].get(name, -1) for name in names)
            if -1 not in parts:
                matcher.group(NodeGroup(group.side, parts, index, group.transform, group.reason, group.where))


class _Ruler:
    def __init__(self, matcher: Matcher, mapping: Mapping) -> None:
        self._matcher, self._mapping = matcher, mapping
        #: The rule that claimed a node, by side and node.
        self._claims: dict[tuple[int, int], Rule] = {}
        self._paths = tuple(_by_normal_path(nodes) for nodes in (matcher.candidate, matcher.reference))

    def apply(self) -> None:
        self._ignore()
        for apart in self._mapping.aparts:
            self._keep_apart(apart)
        renames = self._renames()
        for group, rule in self._groups():
            own = renames.get(group.whole) if group.side == 1 else None
            if own is None or own[1].specificity <= rule.specificity:
                renames.pop(group.whole if group.side == 1 else -1, None)
                if not self._matcher.group(group):
                    self._refuse(group, rule)
                self._claim_group(group, rule)
        for index, (partner, rule) in sorted(renames.items(), key=lambda item: item[1][1].specificity, reverse=True):
            if self._matcher.pair(index, partner, by_rule(rule.where, confidence=rule.confidence)):
                self._claims[0, index] = self._claims[1, partner] = rule
            else:
                self._check_claim((1, partner), rule)
        if self._mapping.class_rules:
            self._by_class()

    def _keep_apart(self, apart: Apart) -> None:
        """Forbids the pairs of a rule: for each value of its placeholders, all below one with all below the other."""
        below = []
        for nodes, path in ((self._matcher.candidate, apart.candidate), (self._matcher.reference, apart.reference)):
            compiled = re.compile(rf"(?:{pattern(path).pattern})(?=$|[./])")
            found: dict[tuple[str, ...], list[int]] = {}
            for index, node in enumerate(nodes):
                match = compiled.match(normalise(node.path))
                if match:
                    found.setdefault(tuple(value for _, value in sorted(match.groupdict().items())), []).append(index)
            below.append(found)
        for key, candidates in below[0].items():
            self._matcher.keep_apart(candidates, below[1].get(key, ()))

    # -- rules of one path

    def _ignore(self) -> None:
        pairs = self._matcher.pairs
        for nodes, ignored in (
            (self._matcher.candidate, pairs.ignored_candidate),
            (self._matcher.reference, pairs.ignored_reference),
        ):
            for index, node in enumerate(nodes):
                found = self._mapping.translate(normalise(node.path), node.class_name)
                if found is not None and found.rule.ignores:
                    ignored.add(index)

    def _renames(self) -> dict[int, tuple[int, Rule]]:
        """Gives, for each node of the candidate that a rule of one path names, its partner and that rule."""
        found = {}
        for index, node in enumerate(self._matcher.candidate):
            translation = self._mapping.translate(normalise(node.path), node.class_name)
            if translation is None or translation.rule.ignores:
                continue
            partner = self._matcher.find_reference(translation.path)
            if partner is not None and _has_class(self._matcher.reference[partner], translation.rule.classes[1]):
                found[index] = (partner, translation.rule)
        return found

    # -- rules of several paths

    def _groups(self) -> list[tuple[NodeGroup, Rule]]:
        """Gives the groups that rules make, those of the most specific rules first."""
        rules = [rule for rule in self._mapping.rules if rule.combines]
        rules.sort(key=lambda rule: specificity(_whole_path(rule)), reverse=True)
        return [(group, rule) for rule in rules for group in self._groups_of(rule)]

    def _groups_of(self, rule: Rule) -> list[NodeGroup]:
        side = 0 if len(rule.candidate) > 1 else 1
        whole_path, part_paths = _whole_path(rule), (rule.candidate, rule.reference)[side]
        nodes = (self._matcher.candidate, self._matcher.reference)
        compiled, found = pattern(whole_path), []
        for path, whole in self._paths[1 - side].items():
            match = compiled.fullmatch(path)
            if match is None or not _has_class(nodes[1 - side][whole], rule.classes[1 - side]):
                continue
            names = [fill(part, match) for part in part_paths]
            parts = [self._paths[side].get(name) for name in names]
            missing = [name for name, part in zip(names, parts, strict=True) if part is None]
            if missing and len(missing) < len(parts):
                other = ("candidate", "reference")[side]
                raise MappingError(
                    f"{rule.where}: {path!r} is made of several nodes, but the {other} has no {missing[0]!r}."
                )
            members = tuple(part for part in parts if part is not None)
            if members and all(_has_class(nodes[side][part], rule.classes[side]) for part in members):
                text = (
                    f"{rule.transform.describe()} of {', '.join(names)}"
                    if len(names) > 1
                    else rule.transform.describe()
                )
                reason = by_rule(rule.where, text, rule.confidence)
                found.append(NodeGroup(side, members, whole, rule.transform, reason, rule.where))
        return found

    def _claim_group(self, group: NodeGroup, rule: Rule) -> None:
        for key in ((1 - group.side, group.whole), *((group.side, part) for part in group.parts)):
            self._claims[key] = rule

    def _refuse(self, group: NodeGroup, rule: Rule) -> None:
        for key in ((1 - group.side, group.whole), *((group.side, part) for part in group.parts)):
            self._check_claim(key, rule)

    def _check_claim(self, key: tuple[int, int], rule: Rule) -> None:
        """Refuses two rules of one rank that claim a node; a more specific one simply wins."""
        other = self._claims.get(key)
        if other is None or other is rule or other.specificity > rule.specificity:
            return
        name = (self._matcher.candidate, self._matcher.reference)[key[0]][key[1]].path
        raise MappingError(f"{rule.where}: {name!r} is claimed by the rule at {other.where} as well; keep one of both.")

    # -- rules by class

    def _by_class(self) -> None:
        """Walks both graphs from the top, following equal names and what class rules say of children."""
        matcher = self._matcher
        stands_for: dict[int, int] = {}
        order = sorted(
            (i for i, node in enumerate(matcher.candidate) if node.kind is NodeKind.MODULE),
            key=lambda i: matcher.candidate[i].path.count(".") + bool(matcher.candidate[i].path),
        )
        named: dict[int, tuple[int, ClassRule]] = {}
        for index in order:
            partner = self._partner_in_walk(index, stands_for, named)
            if partner is not None:
                stands_for[index] = partner
                self._name_children(index, partner, named)

    def _partner_in_walk(
        self, index: int, stands_for: dict[int, int], named: dict[int, tuple[int, ClassRule]]
    ) -> int | None:
        matcher, node = self._matcher, self._matcher.candidate[index]
        if matcher.pairs.partner[index] >= 0:
            return int(matcher.pairs.partner[index])
        if index in named:
            partner, rule = named[index]
            matcher.pair(index, partner, by_rule(rule.where))
            return partner
        parent = stands_for.get(matcher.parents[0][index])
        by_path, by_normal = matcher.by_path.get(node.path), matcher.by_normal_path.get(normalise(node.path))
        if parent is not None:
            last = node.path.rpartition(".")[2]
            head = matcher.reference[parent].path
            below = matcher.by_path.get(f"{head}.{last}" if head else last)
            if below is not None and below != by_path:
                matcher.pair(index, below, BY_RELATIVE_NAME)
                return below
            if normalise(node.path) == normalise(matcher.candidate[matcher.parents[0][index]].path):
                return parent  # a wrapper
        found = by_path if by_path is not None else by_normal
        if found is not None:
            matcher.pair(index, found, BY_NAME if by_path is not None else BY_NORMALISED_NAME)
        return found

    def _name_children(self, index: int, partner: int, named: dict[int, tuple[int, ClassRule]]) -> None:
        containers = self._matcher.candidate[index], self._matcher.reference[partner]
        for rule in self._mapping.class_rules:
            if rule.classes == ("", ""):
                fits = not normalise(containers[0].path)
            else:
                fits = all(_has_class(node, name) for node, name in zip(containers, rule.classes, strict=True))
            if not fits:
                continue
            for name, other in rule.children:
                child = self._paths[0].get(_below(normalise(containers[0].path), name))
                target = self._paths[1].get(_below(normalise(containers[1].path), other))
                if child is not None and target is not None:
                    named[child] = (target, rule)


def _whole_path(rule: Rule) -> str:
    return rule.reference[0] if len(rule.candidate) > 1 else rule.candidate[0]


def _has_class(node: Node, name: str) -> bool:
    return not name or node.class_name == name


def _below(path: str, child: str) -> str:
    return ".".join(part for part in (path, child) if part)


def _by_normal_path(nodes: Sequence[Node]) -> dict[str, int]:
    """Gives nodes by their path without wrappers; of a wrapper and what it wraps, the outermost."""
    found: dict[str, int] = {}
    for index, node in enumerate(nodes):
        found.setdefault(normalise(node.path), index)
    return found


def _operators(nodes: Sequence[Node], module: Node, paths: dict[str, int]) -> list[int]:
    """Gives the operators that a module itself called."""
    head = normalise(module.path) + "/"
    return [index for path, index in paths.items() if path.startswith(head) and nodes[index].kind is NodeKind.OP]
