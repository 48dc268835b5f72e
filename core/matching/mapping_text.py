"""Writes proposed rules as a mapping file, each with a comment that says how sure it is and why."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from msprobe.core.matching.transforms import INTERLEAVE, Transform

if TYPE_CHECKING:
    from msprobe.core.matching.mapping import Rule
    from msprobe.core.matching.proposing import Proposal

_WIDTH = 100


def mapping_text(proposal: Proposal, *, candidate: str, reference: str) -> str:
    """Gives the text of a mapping file; ``candidate`` and ``reference`` name the runs in its first line."""
    lines = [
        f"# Proposed by `msprobe map` from {candidate} (candidate) and {reference} (reference).",
        f"# {proposal.paired} of {proposal.modules} modules of the candidate have a partner.",
        "# What equal names say needs no rule.",
        "version: 1",
        "rules:" if proposal.rules else "rules: []",
    ]
    for rule in proposal.rules:
        lines += _rule_lines(rule)
    lines += _left("candidate", proposal.left_candidate) + _left("reference", proposal.left_reference)
    return "\n".join(lines) + "\n"


def _rule_lines(rule: Rule) -> list[str]:
    lines = [f"  # {rule.confidence:.2f}: {rule.note}"]
    lines.append(f"  - candidate: {_paths(rule.candidate)}")
    lines.append(f"    reference: {_paths(rule.reference)}")
    if rule.combines:
        lines.append(f"    combine: {_combine(rule)}")
    return lines


def _paths(paths: tuple[str, ...]) -> str:
    if len(paths) == 1:
        return _quoted(paths[0])
    return f"[{', '.join(map(_quoted, paths))}]"


def _quoted(path: str) -> str:
    """Puts a path in quotes where YAML would read it as something else: a number, or a table for its braces."""
    plain = path[:1].isalpha() and "{" not in path and path.lower() not in ("null", "true", "false", "y", "n")
    return path if plain else f'"{path}"'


def _combine(rule: Rule) -> str:
    transform: Transform = rule.transform
    words = []
    if len(rule.candidate) > 1 or len(rule.reference) > 1:
        if transform.join == INTERLEAVE:
            words.append(f"interleave: {{dim: {transform.dim}, groups: {transform.groups}}}")
        else:
            words.append(f"concat: {transform.dim}")
    if transform.reorders:
        words.append("order: content")
    if transform.transpose is not None:
        words.append(f"transpose: [{transform.transpose[0]}, {transform.transpose[1]}]")
    if transform.reshapes:
        words.append(f"reshape: {list(transform.reshape) if transform.reshape else 'true'}")
    if transform.of:
        words.append(f"of: {transform.of}")
    return f"{{{', '.join(words)}}}"


def _left(side: str, paths: tuple[str, ...]) -> list[str]:
    if not paths:
        return []
    text = textwrap.wrap(", ".join(paths), _WIDTH - 4, break_long_words=False, break_on_hyphens=False)
    return ["", f"# Of the {side}, without a partner:", *(f"#   {line}" for line in text)]
