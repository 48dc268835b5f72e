"""Propose the rules of a mapping from the pairs that were found: generalised over layers, each with its reason."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from msprobe.core.matching.mapping import PLACEHOLDER, Mapping, Rule
from msprobe.core.matching.names import normalise
from msprobe.core.matching.transforms import Transform
from msprobe.core.sites import Node, NodeKind

if TYPE_CHECKING:
    from msprobe.core.matching.nodes import NodePairs
    from msprobe.core.matching.reasons import Reason

#: Names of the placeholders, from the outermost number in a path inwards.
_WORDS = ("i", "j", "k", "l", "m", "n")
_NUMBER = re.compile(r"(?<![^.])\d+(?![^.])")


@dataclass(frozen=True, slots=True)
class Proposal:
    """Proposed rules, and the modules of each side that are in none and have no partner by name either."""

    rules: tuple[Rule, ...]
    left_candidate: tuple[str, ...]
    left_reference: tuple[str, ...]
    paired: int
    modules: int


@dataclass(frozen=True, slots=True)
class _Pair:
    """Modules of the candidate and of the reference that are one, by their paths without wrappers."""

    candidate: tuple[str, ...]
    reference: tuple[str, ...]
    transform: Transform
    reason: Reason

    @property
    def is_group(self) -> bool:
        return len(self.candidate) > 1 or len(self.reference) > 1 or not self.transform.is_plain


def propose(candidate: Sequence[Node], reference: Sequence[Node], pairs: NodePairs) -> Proposal:
    """Gives rules that say what was found; what equal names say needs no rule."""
    found = _pairs(candidate, reference, pairs)
    rules: list[Rule] = []
    partners = {pair.candidate[0]: pair.reference[0] for pair in found if not pair.is_group}
    names = _module_names(candidate), _module_names(reference)
    templates = _templates(found)
    for members in sorted(templates, key=lambda m: (m[0].is_group, m[0].candidate[0].count("."))):
        if not members[0].is_group:
            mapping = Mapping(rules, "")
            members = [pair for pair in members if _translated(mapping, pair.candidate[0]) != pair.reference[0]]
        rules += _rules(members, partners, names)
    in_order = {pair.candidate[0]: position for position, pair in enumerate(found)}
    rules.sort(key=lambda rule: min((in_order[p] for p in in_order if _fits(rule.candidate[0], p)), default=0))
    left = _left(candidate, reference, pairs)
    modules = [i for i, node in enumerate(candidate) if node.kind is NodeKind.MODULE and node.path]
    return Proposal(tuple(rules), *left, paired=len(modules) - len(left[0]), modules=len(modules))


def join(proposals: Sequence[Proposal]) -> Proposal:
    """Gives what the proposals of several ranks say together; what one rank pairs is not left over."""
    if len(proposals) == 1:
        return proposals[0]
    rules = {(rule.candidate, rule.reference): rule for proposal in proposals for rule in proposal.rules}
    left = [
        dict.fromkeys(path for proposal in proposals for path in getattr(proposal, f"left_{side}"))
        for side in ("candidate", "reference")
    ]
    sums = [sum(getattr(proposal, name) for proposal in proposals) for name in ("paired", "modules")]
    return Proposal(tuple(rules.values()), tuple(left[0]), tuple(left[1]), sums[0], sums[1])


def _pairs(candidate: Sequence[Node], reference: Sequence[Node], pairs: NodePairs) -> list[_Pair]:
    """Gives what is paired, of modules, in the candidate's order."""
    found: list[tuple[int, _Pair]] = []
    for index, partner in enumerate(pairs.partner.tolist()):
        if partner >= 0 and candidate[index].kind is NodeKind.MODULE:
            names = normalise(candidate[index].path), normalise(reference[partner].path)
            if all(names):
                found.append((index, _Pair(names[:1], names[1:], Transform(), pairs.reasons[index])))
    sides = (candidate, reference)
    for group in pairs.groups:
        if sides[1 - group.side][group.whole].kind is NodeKind.MODULE:
            parts = tuple(normalise(sides[group.side][part].path) for part in group.parts)
            whole = (normalise(sides[1 - group.side][group.whole].path),)
            of_candidate, of_reference = (parts, whole) if group.side == 0 else (whole, parts)
            first = group.whole if group.side == 1 else min(group.parts)
            found.append((first, _Pair(of_candidate, of_reference, group.transform, group.reason)))
    return [pair for _, pair in sorted(found, key=lambda entry: entry[0])]


def _module_names(nodes: Sequence[Node]) -> set[str]:
    return {normalise(node.path) for node in nodes if node.kind is NodeKind.MODULE}


def _templates(pairs: Iterable[_Pair]) -> list[list[_Pair]]:
    """Groups pairs whose paths are equal but for the numbers in them, equal on both sides."""
    found: dict[object, list[_Pair]] = defaultdict(list)
    for pair in pairs:
        paths = (*pair.candidate, *pair.reference)
        numbers = {tuple(_NUMBER.findall(path)) for path in paths}
        alike = tuple(_NUMBER.sub("{}", path) for path in paths) if len(numbers) == 1 else paths
        found[alike, len(pair.candidate), pair.transform].append(pair)
    return list(found.values())


def _rules(members: list[_Pair], partners: dict[str, str], names: tuple[set[str], set[str]]) -> list[Rule]:
    """Gives one rule for all members where that says nothing wrong of any other module, else one for each."""
    if not members:
        return []
    general = _general(members[0])
    if len(members) > 1 and general is not None and _is_right(general, members, partners, names):
        return [general]
    return [_rule(pair) for pair in members]


def _general(pair: _Pair) -> Rule | None:
    count = len(_NUMBER.findall(pair.candidate[0]))
    if not 0 < count <= len(_WORDS):
        return None

    def filled(path: str) -> str:
        words = iter(_WORDS)
        return _NUMBER.sub(lambda _: f"{{{next(words)}}}", path)

    rule = _rule(pair)
    return replace(rule, candidate=tuple(map(filled, rule.candidate)), reference=tuple(map(filled, rule.reference)))


def _rule(pair: _Pair) -> Rule:
    reason = pair.reason
    return Rule(pair.candidate, pair.reference, "", pair.transform, confidence=reason.confidence, note=reason.text)


def _is_right(rule: Rule, members: list[_Pair], partners: dict[str, str], names: tuple[set[str], set[str]]) -> bool:
    """Checks that a rule names nothing as a pair that is none."""
    meant = {path for pair in members for path in pair.candidate}
    for path in names[0]:
        if path in meant or not _fits(rule.candidate[0], path):
            continue
        first = Rule(rule.candidate[:1], rule.reference[:1], "")
        translated = _translated(Mapping([first], ""), path)
        if translated in names[1] and partners.get(path) != translated:
            return False
    return True


def _fits(template: str, path: str) -> bool:
    parts = PLACEHOLDER.split(template)
    pattern = "".join(re.escape(part) if i % 2 == 0 else "[^.]+" for i, part in enumerate(parts))
    return re.fullmatch(pattern, path) is not None


def _translated(mapping: Mapping, path: str) -> str:
    found = mapping.translate(path)
    return path if found is None else found.path


def _left(
    candidate: Sequence[Node], reference: Sequence[Node], pairs: NodePairs
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Gives the modules of each side without a partner, outermost ones for all below them."""
    in_groups: tuple[set[int], set[int]] = (set(), set())
    for group in pairs.groups:
        in_groups[group.side].update(group.parts)
        in_groups[1 - group.side].add(group.whole)
    paired = (
        {i for i, partner in enumerate(pairs.partner.tolist()) if partner >= 0}
        | in_groups[0]
        | pairs.ignored_candidate,
        set(pairs.partner.tolist()) | in_groups[1] | pairs.ignored_reference,
    )
    return (_paths_without(candidate, paired[0]), _paths_without(reference, paired[1]))


def _paths_without(nodes: Sequence[Node], paired: set[int]) -> tuple[str, ...]:
    return tuple(
        node.path for i, node in enumerate(nodes) if node.kind is NodeKind.MODULE and node.path and i not in paired
    )
