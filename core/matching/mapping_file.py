"""Reads mapping files: ``layers.yaml`` of docs/mapping.md, and the two-level kind (``TopLayer:``) of the older tool.

Every mistake is named with file and line, and what would be right.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from msprobe.core.documents import Document, parse_yaml, read_document
from msprobe.core.errors import ConfigError, MappingError
from msprobe.core.matching.mapping import PLACEHOLDER, Apart, ClassRule, Mapping, Rule, hint
from msprobe.core.matching.names import normalise
from msprobe.core.matching.transforms import CONCAT, INTERLEAVE, Transform

Keys = tuple["str | int", ...]

#: ``parallel`` is read by core.merging.section.
_TOP_KEYS = {"version", "candidate", "reference", "rules", "tokens", "parallel", "automatic"}
_SIDE_KEYS = {"framework", "model"}
_RULE_KEYS = {"candidate", "reference", "combine", "class", "children", "ignore", "apart", "confidence"}
_COMBINE_KEYS = {"concat", "split", "interleave", "order", "transpose", "reshape", "of"}
_TOKEN_LAYOUTS = ("padded", "packed")
_KINDS = ("parameters", "activations", "all")
_TOP_LAYER = "TopLayer"


def read_mapping(path: str | Path, *, swap: bool = False) -> Mapping:
    """Reads a mapping file; ``swap`` exchanges its two sides.

    Raises:
        MappingError: The file is not well formed, asks for something unknown, or two rules claim one name.
    """
    try:
        document = read_document(path)
    except ConfigError as error:
        raise MappingError(str(error)) from None
    mapping = _Reader(document).read()
    return mapping.swapped() if swap else mapping


def parse_mapping(text: str, name: str) -> Mapping:
    """Reads the text of a mapping file in YAML; ``name`` stands for the file in messages.

    Raises:
        MappingError: As ``read_mapping``.
    """
    try:
        document = parse_yaml(text, name)
    except ConfigError as error:
        raise MappingError(str(error)) from None
    return _Reader(document).read()


class _Reader:
    """Turns a document into rules."""

    def __init__(self, document: Document) -> None:
        self._document = document

    def read(self) -> Mapping:
        content = self._document.content
        if not isinstance(content, dict):
            raise self._wrong((), "a mapping file holds 'version: 1' and a list of 'rules'.")
        if _TOP_LAYER in content or (content and not _TOP_KEYS & set(content) and _is_two_level(content)):
            return self._two_levels(content)
        self._check_keys(content, _TOP_KEYS, ())
        if content.get("version") != 1:
            raise self._wrong(("version",), "this msprobe reads 'version: 1' of the mapping file.")
        for side in ("candidate", "reference"):
            self._check_side(content.get(side), (side,))
        rules = content.get("rules", [])
        if not isinstance(rules, list) or not {"rules", "tokens", "parallel"} & set(content):
            raise self._wrong(("rules",), "'rules' must be a list of rules.")
        made = [self._rule(item, ("rules", index)) for index, item in enumerate(rules)]
        plain = [rule for rule in made if isinstance(rule, Rule)]
        _check_unique(plain)
        by_class = [rule for rule in made if isinstance(rule, ClassRule)]
        aparts = [rule for rule in made if isinstance(rule, Apart)]
        source, tokens = str(self._document.path), self._tokens(content)
        automatic = self._automatic(content)
        return Mapping(plain, source, class_rules=by_class, aparts=aparts, tokens=tokens, automatic=automatic)

    def _wrong(self, keys: Keys, text: str) -> MappingError:
        return MappingError(f"{self._document.where(*keys)}: {text}")

    def _check_keys(self, table: dict[Any, Any], known: set[str], keys: Keys) -> None:
        for key in table:
            if key not in known:
                near = hint(str(key), known)
                raise self._wrong((*keys, key), f"unknown key {key!r}.{near or f' Known: {_words(known)}.'}")

    def _check_side(self, side: Any, keys: Keys) -> None:
        if side is None:
            return
        if not isinstance(side, dict):
            raise self._wrong(keys, "the header of a side is a table such as {framework: vllm, model: Qwen2}.")
        self._check_keys(side, _SIDE_KEYS, keys)

    def _tokens(self, content: dict[Any, Any]) -> tuple[str, str]:
        tokens = content.get("tokens", {})
        if not isinstance(tokens, dict):
            raise self._wrong(("tokens",), "'tokens' is a table such as {candidate: packed, reference: padded}.")
        self._check_keys(tokens, {"candidate", "reference"}, ("tokens",))
        for side, layout in tokens.items():
            if layout not in _TOKEN_LAYOUTS:
                raise self._wrong(("tokens", side), f"tokens lie {_words(_TOKEN_LAYOUTS)}, not {layout!r}.")
        return tokens.get("candidate", ""), tokens.get("reference", "")

    def _automatic(self, content: dict[Any, Any]) -> bool:
        value = content.get("automatic", True)
        if not isinstance(value, bool):
            raise self._wrong(("automatic",), f"'automatic' is true or false, not {value!r}.")
        return value

    # -- rules

    def _rule(self, item: Any, keys: Keys) -> Rule | ClassRule | Apart:
        if not isinstance(item, dict):
            raise self._wrong(keys, "a rule holds 'candidate' and 'reference', or 'ignore'.")
        self._check_keys(item, _RULE_KEYS, keys)
        where = self._document.where(*keys)
        if "ignore" in item:
            if len(item) > 1:
                raise self._wrong(keys, "a rule with 'ignore' holds nothing else.")
            return Rule((self._name(item["ignore"], (*keys, "ignore")),), (), where)
        if "apart" in item:
            return self._apart(item, (*keys, "apart"))
        classes = self._classes(item.get("class"), (*keys, "class"))
        if "children" in item:
            return self._class_rule(item, classes, keys)
        missing = {"candidate", "reference"} - set(item)
        if missing:
            raise self._wrong(keys, f"the rule lacks {sorted(missing)[0]!r}.")
        sides = [self._names(item[side], (*keys, side)) for side in ("candidate", "reference")]
        if len(sides[0]) > 1 and len(sides[1]) > 1:
            raise self._wrong(keys, "only one side of a rule can be a list: several nodes are one node of the other.")
        self._check_placeholders(sides, keys)
        transform = self._transform(item, keys)
        if max(map(len, sides)) > 1 and "combine" not in item:
            way_out = "say how, for example 'combine: {concat: -1}'"
            raise self._wrong(keys, f"several nodes are one node here, but the rule lacks 'combine': {way_out}.")
        return Rule(sides[0], sides[1], where, transform, classes, self._confidence(item, keys))

    def _apart(self, item: dict[Any, Any], keys: Keys) -> Apart:
        table = item["apart"]
        if len(item) > 1 or not isinstance(table, dict) or set(table) != {"candidate", "reference"}:
            raise self._wrong(keys, "'apart' stands alone and names two nodes: {candidate: path, reference: path}.")
        candidate, reference = (self._name(table[side], (*keys, side)) for side in ("candidate", "reference"))
        self._check_placeholders([(candidate,), (reference,)], keys)
        return Apart(candidate, reference, self._document.where(*keys))

    def _confidence(self, item: dict[Any, Any], keys: Keys) -> float:
        value = item.get("confidence", 1.0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise self._wrong((*keys, "confidence"), f"a confidence lies between 0 and 1; it is not {value!r}.")
        return float(value)

    def _class_rule(self, item: dict[Any, Any], classes: tuple[str, str], keys: Keys) -> ClassRule:
        if classes == ("", ""):
            raise self._wrong(keys, "a rule with 'children' needs 'class', such as {candidate: ParallelMLP}.")
        if set(item) != {"class", "children"}:
            extra = sorted(set(item) - {"class", "children"})[0]
            raise self._wrong((*keys, extra), "a rule with 'children' holds 'class' and 'children', nothing else.")
        return ClassRule(classes, self._children(item["children"], (*keys, "children")), self._document.where(*keys))

    def _children(self, children: Any, keys: Keys) -> tuple[tuple[str, str], ...]:
        if not isinstance(children, dict) or not children:
            raise self._wrong(keys, "'children' is a table from the candidate's paths to the reference's.")
        found = []
        for name, other in children.items():
            found.append((self._child(name, (*keys, name)), self._child(other, (*keys, name))))
        return tuple(found)

    def _child(self, value: Any, keys: Keys) -> str:
        text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if not isinstance(text, str) or not text or "{" in text:
            raise self._wrong(keys, f"a child is named by its path inside the container, not by {value!r}.")
        return normalise(text)

    def _classes(self, value: Any, keys: Keys) -> tuple[str, str]:
        if value is None:
            return "", ""
        if not isinstance(value, dict) or not value:
            raise self._wrong(keys, "'class' is a table such as {candidate: ParallelMLP}.")
        self._check_keys(value, {"candidate", "reference"}, keys)
        return str(value.get("candidate", "")), str(value.get("reference", ""))

    def _names(self, value: Any, keys: Keys) -> tuple[str, ...]:
        if not isinstance(value, list):
            return (self._name(value, keys),)
        if not value:
            raise self._wrong(keys, "the list is empty; name the nodes.")
        names = tuple(self._name(item, (*keys, index)) for index, item in enumerate(value))
        for name in names:
            if names.count(name) > 1:
                raise self._wrong(keys, f"{name!r} is named twice in one list.")
        return names

    def _name(self, value: Any, keys: Keys) -> str:
        if not isinstance(value, str) or not value:
            raise self._wrong(keys, f"a node is named by text, not by {value!r}.")
        if re.search(r"[{}]", PLACEHOLDER.sub("", value)):
            raise self._wrong(keys, f"{value!r}: a placeholder is one word in braces, such as {{i}}.")
        return normalise(value)

    def _check_placeholders(self, sides: list[tuple[str, ...]], keys: Keys) -> None:
        used = {frozenset(PLACEHOLDER.findall(name)) for names in sides for name in names}
        if len(used) > 1:
            raise self._wrong(keys, "both sides of a rule must use the same placeholders, in every path.")

    # -- transforms

    def _transform(self, item: dict[Any, Any], keys: Keys) -> Transform:
        if "combine" not in item:
            return Transform()
        keys, table = (*keys, "combine"), item["combine"]
        if not isinstance(table, dict) or not table:
            raise self._wrong(keys, "'combine' is a table such as {concat: -1} or {interleave: {dim: 0, groups: 8}}.")
        self._check_keys(table, _COMBINE_KEYS, keys)
        joins = [name for name in ("concat", "split", "interleave") if name in table]
        if len(joins) > 1:
            raise self._wrong(keys, f"'combine' holds {joins[0]!r} and {joins[1]!r}; tensors are joined in one way.")
        several = any(isinstance(item[side], list) and len(item[side]) > 1 for side in ("candidate", "reference"))
        if several and not joins:
            raise self._wrong(keys, "several nodes are joined by 'concat', 'split' or 'interleave'; name one.")
        join, dim, groups = self._join(table, joins[0], keys) if joins else (CONCAT, -1, 1)
        of = table.get("of", "")
        if of and of not in _KINDS:
            raise self._wrong((*keys, "of"), f"'of' is one of {_words(_KINDS)}, not {of!r}.")
        if table.get("order", "content") != "content":
            text = f"'order' is 'content': rows in the order of the other side's equal rows, not {table['order']!r}."
            raise self._wrong((*keys, "order"), text)
        shape = self._reshape(table, keys)
        return Transform(
            join, dim, groups, self._transpose(table, keys), shape or (), shape is not None, of, "order" in table
        )

    def _join(self, table: dict[Any, Any], name: str, keys: Keys) -> tuple[str, int, int | str]:
        keys, value = (*keys, name), table[name]
        if name != INTERLEAVE:
            return CONCAT, self._dim(value, keys), 1
        if not isinstance(value, dict):
            raise self._wrong(keys, "'interleave' is a table such as {dim: 0, groups: 8}.")
        self._check_keys(value, {"dim", "groups"}, keys)
        groups = value.get("groups")
        is_count = isinstance(groups, int) and not isinstance(groups, bool) and groups > 0
        if not is_count and not (isinstance(groups, str) and groups):
            text = f"'groups' is a number, or the name of a recorded scalar such as num_query_groups, not {groups!r}."
            raise self._wrong((*keys, "groups"), text)
        return INTERLEAVE, self._dim(value.get("dim", 0), (*keys, "dim")), groups  # type: ignore[return-value]

    def _dim(self, value: Any, keys: Keys) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._wrong(keys, f"a dimension is a whole number such as 0 or -1, not {value!r}.")
        return value

    def _transpose(self, table: dict[Any, Any], keys: Keys) -> tuple[int, int] | None:
        value = table.get("transpose")
        if value is None:
            return None
        axes = value if isinstance(value, list) else []
        if len(axes) != 2 or any(not isinstance(a, int) or isinstance(a, bool) or a < 0 for a in axes):
            text = f"'transpose' swaps two dimensions, such as [0, 1], not {value!r}."
            raise self._wrong((*keys, "transpose"), text)
        return axes[0], axes[1]

    def _reshape(self, table: dict[Any, Any], keys: Keys) -> tuple[int, ...] | None:
        value = table.get("reshape")
        if value is None or value is False:
            return None
        if value is True:
            return ()
        sizes = value if isinstance(value, list) else []
        if not sizes or any(not isinstance(s, int) or isinstance(s, bool) or s < -1 for s in sizes):
            text = f"'reshape' is a shape such as [-1, 64], or true for that of the other side, not {value!r}."
            raise self._wrong((*keys, "reshape"), text)
        if sizes.count(-1) > 1:
            raise self._wrong((*keys, "reshape"), "only one size of a shape can be -1.")
        return tuple(sizes)

    # -- the older tool's file

    def _two_levels(self, content: dict[Any, Any]) -> Mapping:
        rules = []
        for name, children in content.items():
            if not isinstance(name, str):
                raise self._wrong((name,), f"expected the name of a class, or {_TOP_LAYER}, not {name!r}.")
            classes = ("", "") if name == _TOP_LAYER else (name, "")
            rules.append(ClassRule(classes, self._children(children, (name,)), self._document.where(name)))
        return Mapping((), str(self._document.path), class_rules=rules)


def _is_two_level(content: dict[Any, Any]) -> bool:
    return all(isinstance(value, dict) for value in content.values()) and "rules" not in content


def _check_unique(rules: list[Rule]) -> None:
    """Checks that no path of a side is claimed by two rules; what a path with placeholders covers is not looked at."""
    for side in ("candidate", "reference"):
        seen: dict[tuple[str, str], Rule] = {}
        for rule in rules:
            for name in getattr(rule, side):
                key = (PLACEHOLDER.sub("{}", name), rule.classes[side == "reference"])
                if key[0] == "{}":  # whatever is left: more than one rule may say so
                    continue
                if key in seen:
                    raise MappingError(
                        f"{rule.where}: {name!r} is claimed by an earlier rule at {seen[key].where}; keep one of both."
                    )
                seen[key] = rule


def _words(names: Any) -> str:
    return ", ".join(sorted(map(str, names)))
