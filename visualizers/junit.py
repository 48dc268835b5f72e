"""Write the verdicts as JUnit XML, so that any CI shows which module fails.

The first test case is the run as a whole; then one for each node, under its step-independent name: a failure where a
pair is introduced or suspect, skipped where none of its pairs could be judged, passed otherwise.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree

import numpy as np

from msprobe.visualizers import story
from msprobe.visualizers.marks import SEVERITY, word
from msprobe.visualizers.numerals import count, plural
from msprobe.visualizers.rows import encode, excesses, nodes, row_node, row_place, severities

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from msprobe.core.comparison import Comparison

#: How many pairs of one node a failure lists.
_LISTED = 10

#: What XML 1.0 cannot hold, even escaped.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class JUnit:
    """One test case for each node, for CI."""

    name = "junit"
    file_name = "junit.xml"
    summary = "One test case for each node, for CI."

    def render(self, comparison: Comparison) -> str:
        """Gives the document."""
        suite = ElementTree.Element("testsuite", name="msprobe")
        _add_properties(suite, comparison)
        cases = [_run_case(comparison), *_node_cases(comparison)]
        suite.extend(cases)
        totals = {
            "tests": len(cases),
            "failures": sum(case.find("failure") is not None for case in cases),
            "errors": sum(case.find("error") is not None for case in cases),
            "skipped": sum(case.find("skipped") is not None for case in cases),
        }
        for name, total in totals.items():
            suite.set(name, str(total))
        suite.set("time", "0")
        suites = ElementTree.Element("testsuites", {name: str(total) for name, total in totals.items()})
        suites.append(suite)
        ElementTree.indent(suites, " ")
        return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _legal(text: str) -> str:
    return _ILLEGAL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _add_properties(suite: ElementTree.Element, comparison: Comparison) -> None:
    summary = comparison.summary
    holder = ElementTree.SubElement(suite, "properties")
    facts = {
        "candidate": summary.candidate.path,
        "reference": summary.reference.path,
        "verdict": word(summary.verdict),
        "coverage": story.coverage_sentence(summary),
    }
    for name, value in facts.items():
        ElementTree.SubElement(holder, "property", name=name, value=_legal(value))


def _case(class_name: str, name: str) -> ElementTree.Element:
    return ElementTree.Element("testcase", classname=_legal(class_name), name=_legal(name), time="0")


def _add(case: ElementTree.Element, tag: str, kind: str, message: str, text: str = "") -> None:
    part = ElementTree.SubElement(case, tag, message=_legal(message))
    if kind:
        part.set("type", kind)
    part.text = _legal(text) or None


def _run_case(comparison: Comparison) -> ElementTree.Element:
    summary = comparison.summary
    case = _case("msprobe", "run verdict")
    details = [story.coverage_sentence(summary)]
    details += [f"{finding.kind}: {finding.text}" for finding in summary.findings]
    if summary.exit_code == 1:
        _add(
            case, "failure", word(summary.verdict), summary.sentence, "\n".join([*_source_lines(comparison), *details])
        )
    elif summary.exit_code:
        _add(case, "error", word(summary.verdict), summary.sentence, "\n".join(details))
    else:
        ElementTree.SubElement(case, "system-out").text = _legal("\n".join([summary.sentence, *details]))
    return case


def _source_lines(comparison: Comparison) -> Iterator[str]:
    for place, source in enumerate(comparison.summary.sources, start=1):
        yield f"{place}. {story.source_name(source)}: {story.source_place(source)}; {story.source_error(source)}"
        yield from (f"   - {evidence}" for evidence in source.evidence)


def _node_cases(comparison: Comparison) -> Iterator[ElementTree.Element]:
    pairs = comparison.pairs
    if not len(comparison):
        return
    _, codes = encode(nodes(pairs))
    grouped = np.argsort(codes, kind="stable")
    severity, excess = severities(pairs), excesses(pairs)
    for rows in np.split(grouped, np.flatnonzero(np.diff(codes[grouped])) + 1):
        yield _node_case(comparison, rows, severity, excess)


def _node_case(
    comparison: Comparison, rows: NDArray[np.int64], severity: NDArray[np.int64], excess: NDArray[np.float64]
) -> ElementTree.Element:
    pairs = comparison.pairs
    side = "reference" if pairs["candidate_call"][rows[0]] < 0 else "candidate"
    case = _case(str(pairs[f"{side}_class"][rows[0]]) or "node", row_node(pairs, int(rows[0])))
    guilty = rows[severity[rows] <= SEVERITY["suspect"]]
    if len(guilty):
        order = np.lexsort([np.where(np.isnan(excess[guilty]), np.inf, -excess[guilty]), severity[guilty]])
        lines = [_pair_line(comparison, int(row)) for row in guilty[order][:_LISTED]]
        if len(guilty) > _LISTED:
            lines.append(f"and {count(len(guilty) - _LISTED)} more")
        worst = str(pairs["verdict"][guilty[order][0]])
        _add(case, "failure", worst, f"{worst}: {plural(len(guilty), 'pair')} of {count(len(rows))}", "\n".join(lines))
    elif np.all(severity[rows] >= SEVERITY["inconclusive"]):
        _add(case, "skipped", "", f"{pairs['verdict'][rows[0]]}: {pairs['reason'][rows[0]]}")
    return case


def _pair_line(comparison: Comparison, row: int) -> str:
    pairs = comparison.pairs
    when = f"step {pairs['step'][row]}, micro-step {pairs['micro_step'][row]}, rank {pairs['rank'][row]}"
    return (
        f"{pairs['verdict'][row]}: {row_place(pairs, row)}, {when}: error {float(pairs['error'][row]):.6g}, "
        f"bound {float(pairs['bound'][row]):.6g} ({pairs['bound_source'][row]}). {pairs['reason'][row]}"
    )
